import type { LogEntry, StreamLogsRequest } from '@cloudless/api';
import type { StopSignal } from '@cloudless/base';
import { LogChannel } from './log-channel.js';
import { StreamQuota, type StreamClient, type StreamQuotaLimits } from './stream-quota.js';
import type { TunnelOpener } from './tunnel-hub.js';

/** A log with a slow reader takes about 200 KiB of memory here and the same on its node. */
const LOGS: StreamQuotaLimits = { perNode: 512, perClient: 256, noun: 'logs' };

/**
 * Reads logs of nodes: all logs of a node through one tunnel, or, from agents of protocol 1, one
 * tunnel for each log.
 */
export class NodeLogReader {
  private readonly channels = new Map<string, LogChannel>();
  private readonly shares = new StreamQuota(LOGS);

  /**
   * @param supportsLogChannel - Returns true when the agent of the node supports several logs in
   *   one tunnel.
   */
  constructor(
    private readonly tunnels: TunnelOpener,
    private readonly supportsLogChannel: (nodeId: string) => boolean,
  ) {}

  /**
   * Streams the entries of one log. Leaving the loop, or aborting, closes the log on the node.
   * @throws kind `unavailable` when the node is not connected or the stream breaks, `exhausted`
   *   when the client or the node has too many open logs, or the error that the agent reports.
   */
  async *read(
    nodeId: string,
    request: StreamLogsRequest,
    signal: StopSignal,
    client: StreamClient,
  ): AsyncGenerator<LogEntry> {
    if (!this.supportsLogChannel(nodeId)) {
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
    const giveBack = this.shares.acquire(nodeId, client);
    // Released at once, because a client that has disconnected may never read the entry that waits
    // for it.
    signal.addEventListener('abort', giveBack);
    try {
      yield* this.getChannel(nodeId).read(request, signal);
    } finally {
      signal.removeEventListener('abort', giveBack);
      giveBack();
    }
  }

  private getChannel(nodeId: string): LogChannel {
    const open = this.channels.get(nodeId);
    if (open !== undefined) return open;
    const channel: LogChannel = new LogChannel(nodeId, this.tunnels, () => {
      if (this.channels.get(nodeId) === channel) this.channels.delete(nodeId);
    });
    this.channels.set(nodeId, channel);
    return channel;
  }
}
