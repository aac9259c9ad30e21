import { create } from '@bufbuild/protobuf';
import { describe, expect, it } from '@jest/globals';
import type { ContainerStatus } from '@cloudless/runtime';
import { ContainerState, ContainerStatusResponseSchema } from '../gen/runtime/v1/api_pb.js';
import { parsePid, toStatus } from './to-status.js';

const NANOS_PER_MS = 1_000_000n;

function exited(overrides: {
  createdAt?: bigint;
  finishedAt?: bigint;
  exitCode?: number;
  reason?: string;
}): ContainerStatus {
  const status = {
    state: ContainerState.CONTAINER_EXITED,
    createdAt: 2_000n * NANOS_PER_MS,
    finishedAt: 3_000n * NANOS_PER_MS,
    ...overrides,
  };
  return toStatus(create(ContainerStatusResponseSchema, { status }), '10.0.0.7', 1_000);
}

describe('toStatus', () => {
  it('returns an exit time that is not before the start time', () => {
    expect(exited({ finishedAt: 0n })).toMatchObject({ startedAtMs: 2_000, finishedAtMs: 2_000 });
    expect(exited({})).toMatchObject({ startedAtMs: 2_000, finishedAtMs: 3_000 });
  });

  it.each([
    { exitCode: 137, reason: 'OOMKilled', expected: 'out of memory' },
    { exitCode: 0, reason: 'OOMKilled', expected: 'completed' },
    { exitCode: 143, reason: 'Error', expected: 'killed by SIGTERM' },
  ])(
    'returns the reason "$expected" for exit code $exitCode and reason $reason of the runtime',
    ({ exitCode, reason, expected }) => {
      expect(exited({ exitCode, reason })).toMatchObject({ exitCode, reason: expected });
    },
  );

  it('returns the reason "lost with the machine" for an unobserved exit only when the container is older than the boot', () => {
    const unobserved = { exitCode: 255, reason: 'Unknown' };
    expect(exited(unobserved).reason).not.toBe('lost with the machine');
    expect(exited({ ...unobserved, createdAt: 999n * NANOS_PER_MS })).toMatchObject({
      exitCode: -1,
      reason: 'lost with the machine',
    });
  });
});

describe('parsePid', () => {
  it.each([
    { info: '{"pid":17}', pid: 17 },
    { info: '{"pid":0}', pid: undefined },
    { info: '{"pid":"17"}', pid: undefined },
    { info: 'no JSON', pid: undefined },
  ])('returns $pid for the status $info', ({ info, pid }) => {
    expect(parsePid({ info })).toBe(pid);
  });
});
