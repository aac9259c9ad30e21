import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { ExecCommandResponseSchema, type ExecCommandResponse } from '../gen.js';
import { MAX_PART_LENGTH, ExecResultAssembler, splitExecResult } from './exec-result-parts.js';

/** Splits a result, encodes and decodes each part, and assembles the result again. */
function sendInParts(result: ExecCommandResponse): ExecCommandResponse {
  const assembler = new ExecResultAssembler();
  const parts = splitExecResult(result).map((part) =>
    fromBinary(ExecCommandResponseSchema, toBinary(ExecCommandResponseSchema, part)),
  );
  for (const part of parts.slice(0, -1)) assembler.add(part);
  return assembler.finish(parts.at(-1)!);
}

/** Fields beside the output. */
const otherFields = { exitCode: 3, containerId: 'c', replicaId: 'r', truncated: true };

describe('splitExecResult and ExecResultAssembler', () => {
  it.each([
    { name: 'is empty', output: {} },
    { name: 'fits into one part', output: { stdout: 'out', stderr: 'err' } },
    {
      name: 'has one character too many for one part',
      output: { stdout: 'a'.repeat(MAX_PART_LENGTH + 1) },
    },
    {
      name: 'has more stderr than stdout',
      output: { stdout: 'a', stderr: 'b'.repeat(3 * MAX_PART_LENGTH) },
    },
    {
      name: 'has a surrogate pair across the border of a part',
      output: { stdout: `${'a'.repeat(MAX_PART_LENGTH - 1)}😀b` },
    },
    {
      name: 'consists of surrogate pairs',
      output: { stdout: `x${'😀'.repeat(MAX_PART_LENGTH)}` },
    },
    {
      name: 'has the largest allowed size',
      output: {
        stdout: '\ufffd'.repeat(1024 * 1024),
        stderr: '\ufffd'.repeat(1024 * 1024),
        stdoutRaw: new Uint8Array(1024 * 1024).fill(255),
        stderrRaw: new Uint8Array(1024 * 1024).fill(254),
      },
    },
  ])('restore a result that $name', ({ output }) => {
    const result = create(ExecCommandResponseSchema, { ...otherFields, ...output });
    const [before, after] = [result, sendInParts(result)].map((response) =>
      Buffer.from(toBinary(ExecCommandResponseSchema, response)),
    );
    expect(before!.equals(after!)).toBe(true);
  });
});

describe('splitExecResult', () => {
  it('returns parts of at most 64 Ki characters and bytes, with the exit code in the last part', () => {
    const stdout = 'ä'.repeat(1024 * 1024);
    const parts = splitExecResult(
      create(ExecCommandResponseSchema, {
        ...otherFields,
        stdout,
        stdoutRaw: new Uint8Array(100_000),
      }),
    );
    expect(parts.map((part) => [part.stdout.length, part.stdoutRaw.length, part.exitCode])).toEqual(
      [
        [65_536, 65_536, 0],
        [65_536, 34_464, 0],
        ...Array.from({ length: 13 }, () => [65_536, 0, 0]),
        [65_536, 0, 3],
      ],
    );
  });
});

describe('ExecResultAssembler', () => {
  it('rejects parts that are larger together than any valid result', () => {
    const assembler = new ExecResultAssembler();
    const part = create(ExecCommandResponseSchema, { stdout: 'a'.repeat(MAX_PART_LENGTH) });
    for (let count = 0; count < 128; count += 1) assembler.add(part);
    expect(() => assembler.add(part)).toThrow('larger than 1 MiB for each stream');
  });
});
