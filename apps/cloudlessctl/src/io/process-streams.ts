import { fstatSync } from 'node:fs';
import { errorCodeOf } from '@cloudless/base';
import { BrokenPipeError } from './io.js';
import type { CliInput, CliOutput } from './io.js';

/** Width of an output that is not a terminal or does not report its width. */
const DEFAULT_COLUMNS = 80;

/** Standard output or standard error of the process. */
export class ProcessOutput implements CliOutput {
  constructor(private readonly stream: NodeJS.WriteStream) {
    // A write rejects with the error of a closed pipe. Without this listener the error event would
    // also end the process with a stack trace.
    stream.on('error', () => undefined);
  }

  get isTTY(): boolean {
    return this.stream.isTTY === true;
  }

  get columns(): number {
    // A terminal without a size reports 0 columns.
    return this.stream.columns || DEFAULT_COLUMNS;
  }

  write(data: string | Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.stream.write(data, (error) => {
        if (error === undefined || error === null) resolve();
        else if (['EPIPE', 'ERR_STREAM_DESTROYED'].includes(errorCodeOf(error) ?? ''))
          reject(new BrokenPipeError());
        else reject(error);
      });
    });
  }
}

/** Standard input of the process. */
export class ProcessInput implements CliInput {
  readonly kind: CliInput['kind'];

  constructor(private readonly stream: NodeJS.ReadStream) {
    this.kind = findInputKind(stream);
  }

  async readAll(maxBytes: number): Promise<Uint8Array | undefined> {
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of this.stream) {
      const bytes = Buffer.from(chunk);
      chunks.push(bytes);
      size += bytes.length;
      if (size > maxBytes) return undefined;
    }
    return new Uint8Array(Buffer.concat(chunks));
  }

  readChunks(): AsyncIterable<Uint8Array> {
    return this.stream as AsyncIterable<Buffer>;
  }
}

function findInputKind(stream: NodeJS.ReadStream): CliInput['kind'] {
  if (stream.isTTY) return 'terminal';
  try {
    const info = fstatSync(0); // the file descriptor of standard input
    return info.isFIFO() || info.isFile() ? 'pipe' : 'other';
  } catch {
    // Standard input was closed before the start.
    return 'other';
  }
}
