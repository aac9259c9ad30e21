import { create } from '@bufbuild/protobuf';
import { RolloutStatus_Phase as Phase } from '@cloudless/api';
import { ControlRecordSchema, RolloutRecordSchema } from '@cloudless/api/store';
import { askedFor } from './asked-for.js';

const goesOn = { phase: Phase.IN_PROGRESS, reason: '', waitsForPromotion: false };
const { IN_PROGRESS, PAUSED, FAILED, COMPLETED, ROLLED_BACK } = Phase;

describe('askedFor', () => {
  it.each([
    { name: 'nothing', phase: IN_PROGRESS, shows: {} },
    { name: 'a pause', phase: IN_PROGRESS, pausedVersion: 2, shows: { phase: PAUSED } },
    { name: 'a pause of another version', phase: IN_PROGRESS, pausedVersion: 1, shows: {} },
    { name: 'a pause that came too late', phase: COMPLETED, pausedVersion: 2, shows: {} },
    { name: 'a pause after a rollback', phase: ROLLED_BACK, pausedVersion: 2, shows: {} },
    { name: 'a resume', phase: PAUSED, shows: goesOn },
    {
      name: 'a pause by impossible limits',
      phase: PAUSED,
      reason: 'no replica may be stopped',
      shows: {},
    },
    { name: 'a failure', phase: FAILED, reason: 'it crashes', shows: {} },
    {
      name: 'a failure that was paused before',
      phase: FAILED,
      reason: 'it crashes',
      pausedVersion: 2,
      shows: {},
    },
    { name: 'a retry of a failure', phase: FAILED, rollout: { retry: true }, shows: goesOn },
    {
      name: 'a wait for a promotion',
      phase: PAUSED,
      reason: 'step 1',
      rollout: { waitsForPromotion: true },
      shows: {},
    },
    {
      ...{ name: 'a promotion', phase: PAUSED, reason: 'step 1', shows: goesOn },
      rollout: { waitsForPromotion: true, promoted: true },
    },
    {
      ...{
        name: 'a promotion while it is paused',
        phase: PAUSED,
        reason: 'step 1',
        pausedVersion: 2,
        shows: { phase: PAUSED },
      },
      rollout: { waitsForPromotion: true, promoted: true },
    },
  ])('$name', ({ phase, reason = '', pausedVersion = 0, rollout = {}, shows }) => {
    const control = create(ControlRecordSchema, {
      rolloutPhase: phase,
      rolloutReason: reason,
      pausedVersion,
    });
    expect(askedFor(control, create(RolloutRecordSchema, { version: 2, ...rollout }))).toEqual(
      shows,
    );
  });
});
