import { create } from '@bufbuild/protobuf';
import { CloudlessError } from '@cloudless/base';
import { ExecCommandResponseSchema, type ExecCommandResponse } from '../gen.js';

/**
 * Largest part of each text, in UTF-16 code units, and of the exact bytes of each stream. Text is
 * at most three times as long in UTF-8. A server that reads messages of 4 MiB and counts 32 bytes
 * for each part of a text of 20,000 parts accepts that.
 */
export const MAX_PART_LENGTH = 64 * 1024;
/**
 * Larger than any valid result: of each stream 1 Mi characters of text and 1 MiB of exact bytes.
 */
const MAX_RESULT_LENGTH = 8 * 1024 * 1024;

/**
 * Splits the result of a command for a connection with small messages.
 * @returns At least one part, in the order of the output. The last part contains all fields beside
 *   the output.
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

/** Assembles a result from the parts that {@link splitExecResult} made. */
export class ExecResultAssembler {
  private readonly parts: ExecCommandResponse[] = [];
  private length = 0;

  /** @throws kind `exhausted` when the result is larger than any valid one. */
  add(piece: ExecCommandResponse): void {
    this.length +=
      piece.stdout.length + piece.stderr.length + piece.stdoutRaw.length + piece.stderrRaw.length;
    if (this.length > MAX_RESULT_LENGTH) {
      throw new CloudlessError(
        'exhausted',
        'the command was executed, but its result is larger than 1 MiB for each stream',
      );
    }
    this.parts.push(piece);
  }

  /** @param last - The last part, with all fields beside the output. @throws as {@link add}. */
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

function omitOutput({ exitCode, containerId, replicaId, truncated }: ExecCommandResponse) {
  return { exitCode, containerId, replicaId, truncated };
}

/**
 * No part ends between the two halves of a surrogate pair, because each half alone would be encoded
 * as U+FFFD.
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
