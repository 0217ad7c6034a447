"""Actions for lagent: code, the web, papers, slides; and agents that choose among actions."""
