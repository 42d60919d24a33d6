"""Inference servers that are started for models of the configuration, shared by all programs of the user.

Three kinds of processes take part. A program that calls a model (:mod:`.engine_server`) starts a supervisor
(:mod:`.supervisor`), which owns the state file and decides when the server ends; the supervisor starts a
guard (:mod:`.guard`), which is the server's parent, writes its log, and ends all its processes when the
supervisor or the guard's turn is over. The file locks of :mod:`.engine_folder` state who lives: the kernel
releases them with the process.
"""
