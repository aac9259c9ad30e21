import { CloudlessError } from '@cloudless/base';

/**
 * The client of a stream: the connection of its call, because clients have no identities. All calls
 * without a connection, made within one process, count as one client (undefined).
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

/** Open streams to one node. */
interface NodeStreams {
  total: number;
  readonly byClient: Map<StreamClient, number>;
}

/** Counts the open streams of one kind, by node and client. */
export class StreamQuota {
  private readonly byNode = new Map<string, NodeStreams>();

  constructor(private readonly limits: StreamQuotaLimits) {}

  /**
   * Reserves one stream to a node.
   * @returns A function that releases the reservation; later calls do nothing.
   * @throws kind `exhausted` when the node or the client has reached its limit.
   */
  acquire(nodeId: string, client: StreamClient): () => void {
    const { perNode, perClient, noun } = this.limits;
    const node = this.byNode.get(nodeId) ?? { total: 0, byClient: new Map<StreamClient, number>() };
    const clientTotal = node.byClient.get(client) ?? 0;
    if (clientTotal >= perClient)
      throw new CloudlessError(
        'TOO_MANY_STREAMS',
        `this client has ${clientTotal} ${noun} of node "${nodeId}" open; close some first`,
      );
    if (node.total >= perNode)
      throw new CloudlessError(
        'TOO_MANY_STREAMS',
        `${node.total} ${noun} of node "${nodeId}" are open; close some first`,
      );
    node.total += 1;
    node.byClient.set(client, clientTotal + 1);
    this.byNode.set(nodeId, node);
    let isReserved = true;
    return () => {
      if (isReserved) this.release(nodeId, node, client);
      isReserved = false;
    };
  }

  private release(nodeId: string, node: NodeStreams, client: StreamClient): void {
    node.total -= 1;
    const remaining = (node.byClient.get(client) ?? 1) - 1;
    if (remaining > 0) node.byClient.set(client, remaining);
    else node.byClient.delete(client);
    if (node.total === 0) this.byNode.delete(nodeId);
  }
}
