import { timestampMs } from '@bufbuild/protobuf/wkt';
import type { LogEntry } from '@cloudless/api';
import { formatZonedTime } from '../output/local-time.js';
import type { Style } from '../output/style.js';
import { getReplicaNumber } from '../names.js';

/** Options of {@link LogPrinter}. */
export interface LogPrinterOptions {
  readonly style: Style;
  /** True prints the time before each line. */
  readonly timestamps: boolean;
  /** Returns the offset from UTC of the printed times, in minutes. */
  getOffsetMinutes(timeMs: number): number;
  /**
   * True prefixes all lines with their replica. False prefixes lines only after a second replica
   * has written.
   */
  readonly prefixes: boolean;
  /** Receives whole lines. */
  write(data: string | Uint8Array): Promise<void>;
  /** Receives the line that separates the lines of an earlier container from those of the next. */
  writeMarker(line: string): Promise<void>;
}

/** A longer line is printed in pieces, so that a log without line ends does not fill the memory. */
const MAX_PENDING_BYTES = 1024 * 1024;
const LINE_FEED = Uint8Array.of(10);
/** Length of container ids in messages, as in tables. */
const SHORT_ID_LENGTH = 12;

/**
 * Prints whole lines from the log entries of several containers. The pieces of a long line are kept
 * until the last piece arrives. Between the lines of a container and those of the container that
 * replaced it in the same replica comes a marker. Call {@link flush} at the end.
 */
export class LogPrinter {
  /** Incomplete lines by container and output stream. */
  private readonly pending = new Map<
    string,
    { readonly prefix: string; readonly pieces: Uint8Array[]; size: number }
  >();
  private firstReplica: string | undefined;
  /** Id of the container whose line came last, by replica id. */
  private readonly containers = new Map<string, string>();
  /** True from the first line that needs a prefix. */
  private prefixes: boolean;
  /** Width of the longest prefix so far. */
  private width = 0;
  /** Order in which the workloads have written first, for their colours. */
  private readonly workloads: string[] = [];

  constructor(private readonly options: LogPrinterOptions) {
    this.prefixes = options.prefixes;
  }

  /**
   * Prints the lines that the entries complete, with one write for each container.
   * @param workload - Name of the workload for the prefixes. Absent: no line has a prefix.
   */
  async print(entries: readonly LogEntry[], workload?: string): Promise<void> {
    const parts: Uint8Array[] = [];
    const writeParts = async (): Promise<void> => {
      if (parts.length > 0) await this.options.write(joinBytes(parts.splice(0)));
    };
    for (const entry of entries) {
      const before = this.containers.get(entry.replicaId);
      this.containers.set(entry.replicaId, entry.containerId);
      if (before !== undefined && before !== entry.containerId) {
        await writeParts();
        await this.options.writeMarker(formatMarker(entry, before, workload));
      }
      parts.push(...this.assembleLine(entry, workload));
    }
    await writeParts();
  }

  /** Returns the line that an entry completes; empty while the line is incomplete. */
  private assembleLine(entry: LogEntry, workload: string | undefined): readonly Uint8Array[] {
    this.firstReplica ??= entry.replicaId;
    if (entry.replicaId !== this.firstReplica && workload !== undefined) this.prefixes = true;
    const key = `${entry.containerId}/${entry.stream}`;
    const line = this.pending.get(key) ?? {
      prefix: this.formatPrefix(entry, workload),
      pieces: [],
      size: 0,
    };
    const piece = entry.raw.length > 0 ? entry.raw : encoder.encode(entry.line);
    line.pieces.push(piece);
    line.size += piece.length;
    if (entry.partial && line.size < MAX_PENDING_BYTES) {
      this.pending.set(key, line);
      return [];
    }
    this.pending.delete(key);
    return [encoder.encode(line.prefix), ...line.pieces, LINE_FEED];
  }

  /** Prints the incomplete lines. */
  async flush(): Promise<void> {
    for (const { prefix, pieces } of this.pending.values())
      await this.options.write(joinBytes([encoder.encode(prefix), ...pieces, LINE_FEED]));
    this.pending.clear();
  }

  private formatPrefix({ replicaId, time }: LogEntry, workload: string | undefined): string {
    const { style, timestamps } = this.options;
    const timeMs = time === undefined ? undefined : timestampMs(time);
    const stamp =
      timestamps && timeMs !== undefined
        ? `${style.dim(formatZonedTime(timeMs, this.options.getOffsetMinutes(timeMs)))} `
        : '';
    if (!this.prefixes || workload === undefined) return stamp;
    const number = getReplicaNumber(replicaId);
    const name = `${workload}-${number}`;
    this.width = Math.max(this.width, name.length);
    const colors = [style.cyan, style.yellow, style.green, style.magenta, style.blue, style.red];
    const paint = colors[(Number(number) + this.indexOf(workload)) % colors.length] ?? style.cyan;
    return `${paint(`${name.padEnd(this.width)} |`)} ${stamp}`;
  }

  private indexOf(workload: string): number {
    const index = this.workloads.indexOf(workload);
    return index >= 0 ? index : this.workloads.push(workload) - 1;
  }
}

/** Returns the line between the lines of an earlier container and those of its successor. */
function formatMarker(
  { replicaId, containerId }: LogEntry,
  before: string,
  workload: string | undefined,
): string {
  const replica = workload === undefined ? replicaId : `${workload}-${getReplicaNumber(replicaId)}`;
  return `--- ${replica} was restarted: container ${shorten(before)} ended, ${shorten(containerId)} follows ---`;
}

const shorten = (id: string): string => id.slice(0, SHORT_ID_LENGTH);

const encoder = new TextEncoder();

function joinBytes(parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}
