import { create } from '@bufbuild/protobuf';
import { RolloutStatus_Phase as Phase } from '@cloudless/api';
import { ControlRecordSchema, RolloutRecordSchema } from '@cloudless/api/store';
import { toPendingStatusChange } from './pending-user-action.js';

const continues = { phase: Phase.IN_PROGRESS, reason: '', waitsForPromotion: false };
const { IN_PROGRESS, PAUSED, FAILED, COMPLETED, ROLLED_BACK } = Phase;

describe('toPendingStatusChange', () => {
  it.each([
    { name: 'no change without a request', phase: IN_PROGRESS, expected: {} },
    {
      name: 'PAUSED after a pause',
      phase: IN_PROGRESS,
      pausedVersion: 2,
      expected: { phase: PAUSED },
    },
    {
      name: 'no change after a pause of another version',
      phase: IN_PROGRESS,
      pausedVersion: 1,
      expected: {},
    },
    {
      name: 'no change after a pause of a completed rollout',
      phase: COMPLETED,
      pausedVersion: 2,
      expected: {},
    },
    {
      name: 'no change after a pause of a rolled-back rollout',
      phase: ROLLED_BACK,
      pausedVersion: 2,
      expected: {},
    },
    { name: 'IN_PROGRESS after a resume', phase: PAUSED, expected: continues },
    {
      name: 'no change while impossible limits pause the rollout',
      phase: PAUSED,
      reason: 'no replica may be stopped',
      expected: {},
    },
    {
      name: 'no change after a failure',
      phase: FAILED,
      reason: 'the replica crashes',
      expected: {},
    },
    {
      name: 'no change after a failure of a paused rollout',
      phase: FAILED,
      reason: 'the replica crashes',
      pausedVersion: 2,
      expected: {},
    },
    {
      name: 'IN_PROGRESS after a retry of a failed rollout',
      phase: FAILED,
      rollout: { retry: true },
      expected: continues,
    },
    {
      name: 'no change during a wait for a promotion',
      phase: PAUSED,
      reason: 'step 1',
      rollout: { waitsForPromotion: true },
      expected: {},
    },
    {
      name: 'IN_PROGRESS after a promotion',
      phase: PAUSED,
      reason: 'step 1',
      rollout: { waitsForPromotion: true, promoted: true },
      expected: continues,
    },
    {
      name: 'PAUSED after a promotion of a paused rollout',
      phase: PAUSED,
      reason: 'step 1',
      pausedVersion: 2,
      rollout: { waitsForPromotion: true, promoted: true },
      expected: { phase: PAUSED },
    },
  ])('returns $name', ({ phase, reason = '', pausedVersion = 0, rollout = {}, expected }) => {
    const control = create(ControlRecordSchema, {
      rolloutPhase: phase,
      rolloutReason: reason,
      pausedVersion,
    });
    expect(
      toPendingStatusChange(control, create(RolloutRecordSchema, { version: 2, ...rollout })),
    ).toEqual(expected);
  });
});
