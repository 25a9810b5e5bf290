@"%~dp0netinit.cmd" kubectl %*
