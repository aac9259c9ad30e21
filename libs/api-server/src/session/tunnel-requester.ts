import type { OpenTunnel, TunnelRefused } from '@cloudless/api';

/** Notifications about tunnels. */
export interface TunnelListener {
  onRefused(nodeId: string, refused: TunnelRefused): void;
  /** The session that tunnels were requested through has ended. */
  onSessionEnded(nodeId: string): void;
  /** The lease of the node has ended, so its open tunnels are dead. */
  onNodeLost(nodeId: string): void;
}

/** Requests tunnels from agents. */
export interface TunnelRequester {
  /** Sets the receiver of notifications about tunnels. Called once. */
  setTunnelListener(listener: TunnelListener): void;
  /** Asks the agent of a node to open a tunnel. @returns False when the node is not connected. */
  requestTunnel(nodeId: string, request: OpenTunnel): boolean;
  /** Removes the request for a tunnel if it was not sent yet. */
  withdrawTunnel(nodeId: string, tunnelId: string): void;
}
