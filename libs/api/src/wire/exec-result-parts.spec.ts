import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { ExecCommandResponseSchema, type ExecCommandResponse } from '../gen.js';
import { MAX_PART_LENGTH, ExecResultAssembler, splitExecResult } from './exec-result-parts.js';

/** Sends each part separately and returns the received parts. */
function sent(result: ExecCommandResponse): ExecCommandResponse {
  const joiner = new ExecResultAssembler();
  const pieces = splitExecResult(result).map((piece) =>
    fromBinary(ExecCommandResponseSchema, toBinary(ExecCommandResponseSchema, piece)),
  );
  for (const piece of pieces.slice(0, -1)) joiner.add(piece);
  return joiner.finish(pieces.at(-1)!);
}

const others = { exitCode: 3, containerId: 'c', replicaId: 'r', truncated: true };

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
    const result = create(ExecCommandResponseSchema, { ...others, ...output });
    const [before, after] = [result, sent(result)].map((one) =>
      Buffer.from(toBinary(ExecCommandResponseSchema, one)),
    );
    expect(before!.equals(after!)).toBe(true);
  });

  it('make parts of at most 64 Ki characters and bytes', () => {
    const stdout = 'ä'.repeat(1024 * 1024);
    const pieces = splitExecResult(
      create(ExecCommandResponseSchema, { ...others, stdout, stdoutRaw: new Uint8Array(100_000) }),
    );
    expect(
      pieces.map((piece) => [piece.stdout.length, piece.stdoutRaw.length, piece.exitCode]),
    ).toEqual([
      [65_536, 65_536, 0],
      [65_536, 34_464, 0],
      ...Array.from({ length: 13 }, () => [65_536, 0, 0]),
      [65_536, 0, 3],
    ]);
  });

  it('reject a result without end', () => {
    const joiner = new ExecResultAssembler();
    const piece = create(ExecCommandResponseSchema, { stdout: 'a'.repeat(MAX_PART_LENGTH) });
    for (let count = 0; count < 128; count += 1) joiner.add(piece);
    expect(() => joiner.add(piece)).toThrow('larger than 1 MiB for each stream');
  });
});
