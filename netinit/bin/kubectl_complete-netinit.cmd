@"%~dp0netinit.cmd" kubectl complete -- %*
