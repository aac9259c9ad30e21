import type { LogEntry } from '@cloudless/api';
import { formatTime } from '../output/human.js';
import type { Style } from '../output/style.js';
import { getReplicaNumber } from '../names.js';

/** Options of {@link LogPrinter}. */
export interface LogPrinterOptions {
  readonly style: Style;
  /** True prints the time before each line. */
  readonly timestamps: boolean;
  /**
   * True prefixes all lines with their replica. False prefixes lines only after a second replica
   * has written.
   */
  readonly prefixes: boolean;
  /** Name of the workload for the prefixes. Absent: no line has a prefix. */
  readonly workload?: string;
  /** Receives whole lines. */
  write(data: string | Uint8Array): Promise<void>;
}

/** A longer line is printed in pieces, so that a log without line ends does not fill the memory. */
const MAX_PENDING_BYTES = 1024 * 1024;
const LINE_FEED = Uint8Array.of(10);

/**
 * Prints whole lines from the log entries of several containers. The pieces of a long line are kept
 * until the last piece arrives. Call {@link flush} at the end.
 */
export class LogPrinter {
  /** Incomplete lines by container and output stream. */
  private readonly pending = new Map<
    string,
    { readonly prefix: string; readonly pieces: Uint8Array[]; size: number }
  >();
  private firstReplica: string | undefined;
  /** True from the first line that needs a prefix. */
  private prefixes: boolean;
  /** Width of the longest prefix so far. */
  private width = 0;

  constructor(private readonly options: LogPrinterOptions) {
    this.prefixes = options.prefixes;
  }

  /** Prints the lines that the entries complete, with one write. */
  async print(entries: readonly LogEntry[]): Promise<void> {
    const parts = entries.flatMap((entry) => this.assembleLine(entry));
    if (parts.length > 0) await this.options.write(joinBytes(parts));
  }

  /** Returns the line that an entry completes; empty while the line is incomplete. */
  private assembleLine(entry: LogEntry): readonly Uint8Array[] {
    this.firstReplica ??= entry.replicaId;
    if (entry.replicaId !== this.firstReplica && this.options.workload !== undefined)
      this.prefixes = true;
    const key = `${entry.containerId}/${entry.stream}`;
    const line = this.pending.get(key) ?? { prefix: this.formatPrefix(entry), pieces: [], size: 0 };
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

  private formatPrefix({ replicaId, time }: LogEntry): string {
    const { style, timestamps, workload } = this.options;
    const stamp = timestamps ? `${style.dim(formatTime(time))} ` : '';
    if (!this.prefixes || workload === undefined) return stamp;
    const number = getReplicaNumber(replicaId);
    const name = `${workload}-${number}`;
    this.width = Math.max(this.width, name.length);
    const colors = [style.cyan, style.yellow, style.green, style.magenta, style.blue, style.red];
    const paint = colors[Number(number) % colors.length] ?? style.cyan;
    return `${paint(`${name.padEnd(this.width)} |`)} ${stamp}`;
  }
}

const encoder = new TextEncoder();

function joinBytes(parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}
