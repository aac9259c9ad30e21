import { create } from '@bufbuild/protobuf';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { LogPositionSchema, decodeLines } from '@cloudless/api';
import type { LogEntry, StreamLogsRequestSchema } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';

/** Request of StreamLogs. */
export type LogRequest = MessageInitShape<typeof StreamLogsRequestSchema>;

/**
 * Limit of the API for the positions in one request. When there are more replicas, the request
 * omits the positions of the replicas whose last entry is the oldest.
 */
const MAX_POSITIONS = 4_096;

/**
 * A log stream that continues after the last received line each time the stream is opened again.
 */
export class ResumableLog {
  /**
   * Last received position by replica id. The replica whose last entry is the oldest comes first.
   */
  private readonly lastPositions = new Map<
    string,
    { readonly containerId: string; readonly sequence: bigint }
  >();
  private hasStarted = false;

  /** @param signal - Cancels the open stream. */
  constructor(
    private readonly session: CliSession,
    private readonly request: LogRequest,
    private readonly signal: AbortSignal,
  ) {}

  /**
   * Opens the stream, or resumes the stream after the last received positions. Yields the entries
   * of one message at a time.
   */
  async *open(): AsyncGenerator<readonly LogEntry[]> {
    // The positions replace `tailLines`: the newest lines may have been received already.
    const { tailLines: _, ...resumed } = this.request;
    const after = [...this.lastPositions.values()]
      .slice(-MAX_POSITIONS)
      .map((position) => create(LogPositionSchema, position));
    const request = this.hasStarted ? { ...resumed, after } : this.request;
    for await (const entry of this.session.client.streamLogs(
      request,
      this.session.getStreamOptions(this.signal),
    )) {
      this.hasStarted = true;
      const entries = decodeLines(entry).filter((line) => this.recordPosition(line));
      if (entries.length > 0) yield entries;
    }
  }

  /**
   * Records the position of an entry.
   * @returns False for a line or a gap that was received before. Always true for an entry without a
   *   position.
   */
  private recordPosition({
    replicaId,
    containerId,
    sequence,
    position,
    skipped,
  }: LogEntry): boolean {
    const last = this.lastPositions.get(replicaId);
    const isSameContainer = last?.containerId === containerId;
    const newPosition = sequence > 0n ? sequence : (skipped?.lastSequence ?? position);
    if (newPosition === undefined) return true;
    if (isSameContainer && newPosition <= last.sequence)
      return sequence === 0n && skipped === undefined;
    this.lastPositions.delete(replicaId);
    this.lastPositions.set(replicaId, { containerId, sequence: newPosition });
    return true;
  }
}
