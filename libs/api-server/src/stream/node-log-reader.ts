import type { LogEntry, StreamLogsRequest } from '@cloudless/api';
import type { StopSignal } from '@cloudless/base';
import { LogChannel } from './log-channel.js';
import { StreamQuota, type StreamClient, type StreamQuotaLimits } from './stream-quota.js';
import type { TunnelOpener } from './tunnel-hub.js';

/**
 * Limits of open logs. A log with a slow reader takes about 200 KiB of memory in the coordinator
 * and on its node, so 512 logs take about 100 MiB.
 */
const LOGS: StreamQuotaLimits = { perNode: 512, perClient: 256, noun: 'logs' };

/**
 * Reads logs of nodes: all logs of a node through one tunnel, or through one tunnel for each log
 * when the agent supports only protocol 1.
 */
export class NodeLogReader {
  private readonly channels = new Map<string, LogChannel>();
  private readonly quota = new StreamQuota(LOGS);

  /**
   * @param supportsLogChannel - Returns true when the agent of the node supports several logs in
   *   one tunnel.
   */
  constructor(
    private readonly tunnels: TunnelOpener,
    private readonly supportsLogChannel: (nodeId: string) => boolean,
  ) {}

  /**
   * Streams the entries of one log. Leaving the loop, or aborting the signal, closes the log on the
   * node.
   * @param client - Client whose quota the log counts against.
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
    const release = this.quota.acquire(nodeId, client);
    // Releases the quota at once when the client disconnects: it may never read the next entry, so
    // `finally` may never run.
    signal.addEventListener('abort', release);
    try {
      yield* this.getChannel(nodeId).read(request, signal);
    } finally {
      signal.removeEventListener('abort', release);
      release();
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
