import type { LogEntry, StreamLogsRequest } from '@cloudless/api';
import type { StopSignal } from '@cloudless/base';
import { LogChannel } from './log-channel.js';
import { NodeStreamShares, type Client, type ShareLimits } from './node-stream-shares.js';
import type { Tunnels } from './tunnels.js';

/** A log whose reader is slow takes some 200 KiB here and as much on its node. */
const LOGS: ShareLimits = { perNode: 512, perClient: 256, noun: 'logs' };

/**
 * Reads logs of nodes: through one tunnel for all logs of a node, or, from older agents, one tunnel
 * for each log.
 */
export class LogStreams {
  private readonly channels = new Map<string, LogChannel>();
  private readonly shares = new NodeStreamShares(LOGS);

  /** @param takesChannel - Whether the agent of a node can carry many logs in one tunnel. */
  constructor(
    private readonly tunnels: Tunnels,
    private readonly takesChannel: (nodeId: string) => boolean,
  ) {}

  /**
   * The entries of one log. Leaving the loop, or aborting, ends the log on the node.
   * @throws kind `unavailable` when the node is not connected or the stream breaks, `exhausted`
   *   when the client or the node has too many open, or what the agent says.
   */
  async *read(
    nodeId: string,
    request: StreamLogsRequest,
    signal: StopSignal,
    client: Client,
  ): AsyncGenerator<LogEntry> {
    if (!this.takesChannel(nodeId)) {
      const frames = this.tunnels.open(
        nodeId,
        { case: 'logs', value: request },
        signal,
        undefined,
        client,
      );
      for await (const { frame } of frames) if (frame.case === 'log') yield frame.value;
      return;
    }
    const giveBack = this.shares.take(nodeId, client);
    // At once: a caller that has gone may never take the entry that waits for it.
    signal.addEventListener('abort', giveBack);
    try {
      yield* this.channelTo(nodeId).read(request, signal);
    } finally {
      signal.removeEventListener('abort', giveBack);
      giveBack();
    }
  }

  private channelTo(nodeId: string): LogChannel {
    const open = this.channels.get(nodeId);
    if (open !== undefined) return open;
    const channel: LogChannel = new LogChannel(nodeId, this.tunnels, () => {
      if (this.channels.get(nodeId) === channel) this.channels.delete(nodeId);
    });
    this.channels.set(nodeId, channel);
    return channel;
  }
}
