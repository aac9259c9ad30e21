import type { OpenTunnel, TunnelRefused } from '@cloudless/api';

/** Notifications about tunnels. */
export interface TunnelListener {
  /** The agent has refused to open a requested tunnel. */
  onRefused(nodeId: string, refused: TunnelRefused): void;
  /** The session of the node has ended, so tunnels that were requested through it will not open. */
  onSessionEnded(nodeId: string): void;
  /** The lease of the node has ended, so its open tunnels will deliver no more frames. */
  onNodeLost(nodeId: string): void;
}

/** Requests tunnels from agents through their sessions. */
export interface TunnelRequester {
  /** Sets the receiver of notifications about tunnels. Called once. */
  setTunnelListener(listener: TunnelListener): void;
  /**
   * Sends the agent of a node a request to open a tunnel.
   * @returns False when the node has no session.
   */
  requestTunnel(nodeId: string, request: OpenTunnel): boolean;
  /** Removes a tunnel request that was not sent yet. */
  withdrawTunnel(nodeId: string, tunnelId: string): void;
}

/** Listener of a session hub without tunnels. */
export const NO_TUNNELS: TunnelListener = {
  onRefused: () => undefined,
  onSessionEnded: () => undefined,
  onNodeLost: () => undefined,
};
