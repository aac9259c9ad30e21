import { CloudlessError } from '@cloudless/base';

/**
 * The connection of a call. Calls without a connection, made within one process, count as one
 * client. Without identities, clients can only be distinguished by their connections.
 */
export type StreamClient = object | undefined;

/** Limits of the number of open streams of one kind. */
export interface StreamQuotaLimits {
  /** Streams to one node, of all clients together. */
  readonly perNode: number;
  /**
   * Streams to one node, of one client. Less than `perNode`, so that one client leaves capacity for
   * others.
   */
  readonly perClient: number;
  /** Names the streams in error messages: `logs`. */
  readonly noun: string;
}

interface NodeStreams {
  total: number;
  readonly byClient: Map<StreamClient, number>;
}

/** Counts the open streams of one kind, by node and client. */
export class StreamQuota {
  private readonly byNode = new Map<string, NodeStreams>();

  constructor(private readonly limits: StreamQuotaLimits) {}

  /**
   * Reserves one stream.
   * @returns A function that releases the reservation; later calls do nothing.
   * @throws kind `exhausted` when the node or the client has reached its limit.
   */
  acquire(nodeId: string, client: StreamClient): () => void {
    const { perNode, perClient, noun } = this.limits;
    const node = this.byNode.get(nodeId) ?? { total: 0, byClient: new Map<StreamClient, number>() };
    const own = node.byClient.get(client) ?? 0;
    if (own >= perClient)
      throw new CloudlessError(
        'exhausted',
        `this client has ${own} ${noun} of node "${nodeId}" open; close some first`,
      );
    if (node.total >= perNode)
      throw new CloudlessError(
        'exhausted',
        `${node.total} ${noun} of node "${nodeId}" are open; close some first`,
      );
    node.total += 1;
    node.byClient.set(client, own + 1);
    this.byNode.set(nodeId, node);
    let taken = true;
    return () => {
      if (taken) this.release(nodeId, node, client);
      taken = false;
    };
  }

  private release(nodeId: string, node: NodeStreams, client: StreamClient): void {
    node.total -= 1;
    const left = (node.byClient.get(client) ?? 1) - 1;
    if (left > 0) node.byClient.set(client, left);
    else node.byClient.delete(client);
    if (node.total === 0) this.byNode.delete(nodeId);
  }
}
