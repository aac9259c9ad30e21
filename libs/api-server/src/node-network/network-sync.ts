import { fromBinary } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  NetworkUpdateSchema,
  createEncodedMessage,
  isBinaryCall,
  readFirstMessage,
  type NetworkReport,
  type NetworkUpdate,
} from '@cloudless/api';
import { CloudlessError, type Clock } from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import type { CallAccess } from '../access/call-access.js';
import type { NetworkFeedPort, NetworkFeedReader } from '../ports.js';
import { SLOW_READER_TIMEOUT_MS } from '../watch/slow-reader-timeout.js';
import { requireProxyOf } from './proxy-caller.js';

export interface NetworkSyncDeps {
  readonly state: ClusterState;
  readonly clock: Clock;
  readonly access: CallAccess;
  readonly network: NetworkFeedPort;
}

/**
 * Streams of one node at a time: the proxy, its successor during an upgrade, and connections that
 * are broken without this coordinator knowing.
 */
const MAX_STREAMS_PER_NODE = 4;

/** Serves SyncNetwork: the feed of the network proxies of all nodes. */
export class NetworkSync {
  /** The open streams of each node, oldest first. */
  private readonly streams = new Map<string, Set<AbortController>>();
  private readonly unsubscribe: () => void;

  constructor(private readonly deps: NetworkSyncDeps) {
    this.unsubscribe = deps.state.subscribe((changes) => {
      for (const { kind, id, after } of changes) {
        const hasLeft = kind === 'ban' ? after !== undefined : kind === 'node' && !after;
        if (hasLeft) this.endStreams(id);
      }
    });
  }

  close(): void {
    this.unsubscribe();
  }

  /**
   * Handles the SyncNetwork call. The stream ends when the node is banned or removed, when the proxy
   * reads nothing for {@link SLOW_READER_TIMEOUT_MS}, and when newer streams of the node exceed
   * their number.
   */
  async *syncNetwork(
    reports: AsyncIterable<NetworkReport>,
    context: HandlerContext,
  ): AsyncGenerator<NetworkUpdate> {
    const incoming = reports[Symbol.asyncIterator]();
    const first = await readFirstMessage(incoming, this.deps.clock);
    if (first === undefined || first.nodeId === '')
      throw new CloudlessError('invalid', 'node_id: the first report must name the node');
    const { nodeId, feedId, afterRevision } = first;
    requireProxyOf(nodeId, { ...this.deps, view: this.deps.state.view() }, context);
    const ending = this.openStream(nodeId);
    const end = (): void => ending.abort();
    context.signal.addEventListener('abort', end);
    if (context.signal.aborted) end();
    const reader = this.deps.network.open({ nodeId, feedId, revision: afterRevision });
    // A client that never reads again leaves this generator suspended, so `finally` does not run.
    const release = (): void => {
      reader.close();
      this.closeStream(nodeId, ending);
      context.signal.removeEventListener('abort', end);
      incoming.return?.().catch(() => undefined);
    };
    ending.signal.addEventListener('abort', release);
    void readReports(incoming, reader, end);
    const isBinary = isBinaryCall(context.requestHeader);
    try {
      for await (const bytes of this.limitSilence(reader.read(ending.signal), ending)) {
        yield isBinary
          ? createEncodedMessage(NetworkUpdateSchema, bytes)
          : fromBinary(NetworkUpdateSchema, bytes);
      }
    } finally {
      end();
    }
  }

  /** Ends a stream whose client does not request the next item for too long. */
  private async *limitSilence(
    items: AsyncIterable<Uint8Array>,
    ending: AbortController,
  ): AsyncGenerator<Uint8Array> {
    for await (const item of items) {
      const timer = this.deps.clock.setTimer(SLOW_READER_TIMEOUT_MS, () => ending.abort());
      yield item;
      timer.cancel();
      if (ending.signal.aborted) return;
    }
  }

  private openStream(nodeId: string): AbortController {
    const streams = this.streams.get(nodeId) ?? new Set();
    const [oldest] = streams;
    if (streams.size >= MAX_STREAMS_PER_NODE) oldest?.abort();
    const ending = new AbortController();
    this.streams.set(nodeId, (this.streams.get(nodeId) ?? new Set()).add(ending));
    return ending;
  }

  private closeStream(nodeId: string, ending: AbortController): void {
    const streams = this.streams.get(nodeId);
    streams?.delete(ending);
    if (streams?.size === 0) this.streams.delete(nodeId);
  }

  private endStreams(nodeId: string): void {
    for (const ending of [...(this.streams.get(nodeId) ?? [])]) ending.abort();
  }
}

/** Passes acknowledgements and traffic on until the client ends its side or disconnects. */
async function readReports(
  incoming: AsyncIterator<NetworkReport>,
  reader: NetworkFeedReader,
  end: () => void,
): Promise<void> {
  try {
    for (let item = await incoming.next(); item.done !== true; item = await incoming.next()) {
      reader.acknowledge(item.value.appliedRevision);
      if (item.value.traffic !== undefined) reader.addTraffic(item.value.traffic);
    }
  } catch {
    // The client has disconnected.
  }
  end();
}
