"""``specclient config check``: find mistakes in the configuration."""

from __future__ import annotations

import json

import click

from specclient_cli.common import options, render
from specclient_cli.common.errors import CONFIGURATION
from specclient_cli.common.state import State
from specclient_cli.config import checks


@click.command(name="check")
@options.json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Check the file, the ledger, the keys, the engine, local models and fleets.

    Nothing is sent. The exit code is 3 if something that the configuration uses is missing. A missing key
    of a provider that is not used is only mentioned.

    \b
    Examples:
      specclient config check
      specclient --config other.toml config check

    Environment: SPECCLIENT_CONFIG, SPECCLIENT_LEDGER, and the providers' keys.
    """
    findings = checks.run(ctx.ensure_object(State))
    if as_json:
        click.echo(json.dumps([{"about": f.about, "level": f.level, "text": f.text} for f in findings]))
    else:
        styles = {"ok": render.GOOD, "note": render.DIM, "problem": render.BAD}
        for f in findings:
            render.print_paragraph(f"{f.level:<8} {f.about}: {f.text}", styles[f.level])
    if any(f.level == "problem" for f in findings):
        ctx.exit(CONFIGURATION)
