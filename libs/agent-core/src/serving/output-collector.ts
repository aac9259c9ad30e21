import type { LogStream } from '@cloudless/runtime';
import { decodeOutput } from '../container/log-entry.js';

/** Maximum size of each output stream in the result of a command, bytes. */
export const MAX_OUTPUT_BYTES = 1024 * 1024;

/**
 * Collects the output of a command, up to {@link MAX_OUTPUT_BYTES} per stream. Further output is
 * read and dropped.
 */
export class OutputCollector {
  private readonly chunks: Record<LogStream, Uint8Array[]> = { stdout: [], stderr: [] };
  private readonly sizes: Record<LogStream, number> = { stdout: 0, stderr: 0 };
  private truncated = false;

  /** Adds output of a stream; drops the part beyond {@link MAX_OUTPUT_BYTES}. */
  add(stream: LogStream, data: Uint8Array): void {
    const kept = data.slice(0, MAX_OUTPUT_BYTES - this.sizes[stream]);
    if (kept.length < data.length) this.truncated = true;
    if (kept.length === 0) return;
    this.chunks[stream].push(kept);
    this.sizes[stream] += kept.length;
  }

  /**
   * Returns the output as fields of `ExecCommandResponse`; raw bytes only for output that is not
   * UTF-8.
   */
  result(): {
    readonly stdout: string;
    readonly stderr: string;
    readonly truncated: boolean;
    readonly stdoutRaw?: Uint8Array<ArrayBuffer>;
    readonly stderrRaw?: Uint8Array<ArrayBuffer>;
  } {
    const stdout = this.join('stdout');
    const stderr = this.join('stderr');
    const decoded = { stdout: decodeOutput(stdout), stderr: decodeOutput(stderr) };
    return {
      stdout: decoded.stdout.text,
      stderr: decoded.stderr.text,
      truncated: this.truncated,
      ...(decoded.stdout.raw === undefined ? {} : { stdoutRaw: stdout }),
      ...(decoded.stderr.raw === undefined ? {} : { stderrRaw: stderr }),
    };
  }

  private join(stream: LogStream): Uint8Array<ArrayBuffer> {
    const whole = new Uint8Array(this.sizes[stream]);
    let offset = 0;
    for (const chunk of this.chunks[stream]) {
      whole.set(chunk, offset);
      offset += chunk.length;
    }
    return whole;
  }
}
