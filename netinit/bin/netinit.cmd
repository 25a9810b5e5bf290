@echo off
rem Starts netinit on Windows, with the interpreter of this installation, isolated (-I), as the file `netinit` does elsewhere.
setlocal
set "python=%~dp0python.exe"
if not exist "%python%" set "python=%~dp0..\python.exe"
if not exist "%python%" goto user
"%python%" -I -m netinit %*
exit /b %errorlevel%
rem Installed for one user (pip install --user), whose packages -I would leave out.
:user
py -E -P -m netinit %*
exit /b %errorlevel%
