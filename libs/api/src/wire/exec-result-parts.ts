import { create } from '@bufbuild/protobuf';
import { CloudlessError } from '@cloudless/base';
import { ExecCommandResponseSchema, type ExecCommandResponse } from '../gen.js';

/**
 * Largest piece of output in one part: UTF-16 code units of `stdout` and of `stderr`, and bytes of
 * `stdoutRaw` and of `stderrRaw`. UTF-8 has at most three bytes for a code unit, so a part takes at
 * most 512 KiB, far below the 4 MiB that a server accepts as one message.
 */
export const MAX_PART_LENGTH = 64 * 1024;
/**
 * Twice the largest valid result, which has 1 Mi code units of text and 1 MiB of raw bytes for each
 * of the two streams. Bounds the memory that an agent can use.
 */
const MAX_RESULT_LENGTH = 8 * 1024 * 1024;

/**
 * Splits the result of a command into parts that are small enough for one message each.
 * @returns At least one part, in the order of the output. Only the last part contains the fields
 *   beside the output, such as the exit code.
 */
export function splitExecResult(result: ExecCommandResponse): ExecCommandResponse[] {
  const texts = { stdout: splitText(result.stdout), stderr: splitText(result.stderr) };
  const raw = { stdout: splitBytes(result.stdoutRaw), stderr: splitBytes(result.stderrRaw) };
  const count = Math.max(
    1,
    ...[texts.stdout, texts.stderr, raw.stdout, raw.stderr].map(({ length }) => length),
  );
  return Array.from({ length: count }, (_, index) =>
    create(ExecCommandResponseSchema, {
      ...(index < count - 1 ? {} : omitOutput(result)),
      stdout: texts.stdout[index] ?? '',
      stderr: texts.stderr[index] ?? '',
      stdoutRaw: raw.stdout[index] ?? new Uint8Array(),
      stderrRaw: raw.stderr[index] ?? new Uint8Array(),
    }),
  );
}

/** Assembles a result from the parts of {@link splitExecResult}, which must be added in order. */
export class ExecResultAssembler {
  private readonly parts: ExecCommandResponse[] = [];
  private length = 0;

  /**
   * Adds a part other than the last one.
   * @throws kind `exhausted` when the parts are larger than any valid result.
   */
  add(part: ExecCommandResponse): void {
    this.length +=
      part.stdout.length + part.stderr.length + part.stdoutRaw.length + part.stderrRaw.length;
    if (this.length > MAX_RESULT_LENGTH) {
      throw new CloudlessError(
        'RESPONSE_TOO_LARGE',
        'the command was executed, but its result is larger than 1 MiB for each stream',
      );
    }
    this.parts.push(part);
  }

  /**
   * Adds the last part and returns the whole result.
   * @throws the error of {@link add}.
   */
  finish(last: ExecCommandResponse): ExecCommandResponse {
    this.add(last);
    const { parts } = this;
    if (parts.length === 1) return last;
    return create(ExecCommandResponseSchema, {
      ...omitOutput(last),
      stdout: parts.map(({ stdout }) => stdout).join(''),
      stderr: parts.map(({ stderr }) => stderr).join(''),
      stdoutRaw: joinBytes(parts.map(({ stdoutRaw }) => stdoutRaw)),
      stderrRaw: joinBytes(parts.map(({ stderrRaw }) => stderrRaw)),
    });
  }
}

/** Returns the fields of a result beside its output. */
function omitOutput({ exitCode, containerId, replicaId, truncated }: ExecCommandResponse) {
  return { exitCode, containerId, replicaId, truncated };
}

/**
 * Splits a text, but never within a surrogate pair, because each half alone would be encoded as
 * U+FFFD.
 */
function splitText(text: string): string[] {
  const parts: string[] = [];
  for (let from = 0; from < text.length;) {
    let to = Math.min(text.length, from + MAX_PART_LENGTH);
    if (to < text.length && isHighSurrogate(text.charCodeAt(to - 1))) to -= 1;
    parts.push(text.slice(from, to));
    from = to;
  }
  return parts;
}

function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}

function splitBytes(bytes: Uint8Array): Uint8Array<ArrayBuffer>[] {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  for (let from = 0; from < bytes.length; from += MAX_PART_LENGTH) {
    parts.push(new Uint8Array(bytes.subarray(from, from + MAX_PART_LENGTH)));
  }
  return parts;
}

function joinBytes(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}
