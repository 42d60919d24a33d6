"""``python -m specclient_cli`` runs the command line, as the script ``specclient`` does."""

from specclient_cli.main import main

if __name__ == "__main__":
    main()
