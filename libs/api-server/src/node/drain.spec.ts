import { create } from '@bufbuild/protobuf';
import { durationFromMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import { DrainNodeRequestSchema, DrainStatus_Phase as DrainPhase } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import { startDrain } from './drain.js';

const NOW_MS = 1_000_000;

describe('startDrain for a node that is already being drained', () => {
  it.each([
    {
      name: 'keeps the start time of the drain',
      startedMs: NOW_MS - 60_000,
      expectedMs: NOW_MS - 60_000,
    },
    {
      name: 'sets the start time to now when the stored start time is in the future',
      startedMs: NOW_MS + 60_000,
      expectedMs: NOW_MS,
    },
  ])('$name', ({ startedMs, expectedMs }) => {
    const before = create(NodeRecordSchema, {
      ...{ id: 'node-1', cordoned: true, draining: true },
      drain: { startedAt: timestampFromMs(startedMs), total: 3, phase: DrainPhase.DRAINING },
    });
    const request = create(DrainNodeRequestSchema, {
      nodeId: 'node-1',
      deadline: durationFromMs(5_000),
      force: true,
    });
    const { drain } = startDrain(before, request, { nowMs: NOW_MS, replicaCount: 2 })?.after ?? {};
    expect(drain).toMatchObject({
      startedAt: timestampFromMs(expectedMs),
      deadline: timestampFromMs(NOW_MS + 5_000),
      force: true,
      total: 3,
    });
  });
});
