"""Where a recorder runs: here, or on another machine that is reached by ssh, adb or labgrid."""
