import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { RolloutStatusSchema, type WorkloadStatusSchema } from '@cloudless/api';
import { aRollout } from '../testing/a-rollout.js';
import { aWorkload } from '../testing/run-cli.js';
import { describeCounts, describeProgress, getFraction } from './rollout-counts.js';

type Status = MessageInitShape<typeof WorkloadStatusSchema>;

function aState(status: Status, from = aWorkload()) {
  Object.assign(from.status ?? {}, status);
  return from;
}

describe('describeCounts', () => {
  it.each([
    { name: 'a new workload', workload: aState({ readyReplicas: 1 }), text: '1 of 2 ready' },
    {
      name: 'a surge without an older version',
      workload: aState({ readyReplicas: 3, totalReplicas: 3, updatedReplicas: 3 }),
      text: '2 of 2 ready, 1 extra',
    },
    {
      name: 'a scale-down',
      workload: aState({ totalReplicas: 3 }),
      text: '2 of 2 ready, 1 stopping',
    },
    {
      name: 'a scaling to 0',
      workload: aState({ desiredReplicas: 0, readyReplicas: 0 }),
      text: '2 replicas still stopping',
    },
    {
      name: 'the last replica of a scaling to 0, which is ready',
      workload: aState({ desiredReplicas: 0, readyReplicas: 1, totalReplicas: 1 }),
      text: '1 replica still stopping',
    },
    {
      name: 'the end of a scaling to 0',
      workload: aState({ desiredReplicas: 0, readyReplicas: 0, totalReplicas: 0 }),
      text: '0 of 0 ready',
    },
    {
      name: 'a rollout in mid-surge',
      workload: aState({ readyReplicas: 5, totalReplicas: 5, updatedReplicas: 2 }, aRollout()),
      text: '4 of 4 ready, 1 extra, 2 updated, 3 old',
    },
    {
      name: 'the end of a rollout',
      workload: aState({ totalReplicas: 4, updatedReplicas: 4 }, aRollout()),
      text: '4 of 4 ready',
    },
  ])('counts $name as "$text"', ({ workload, text }) => {
    expect(describeCounts(workload)).toBe(text);
  });
});

describe('describeProgress', () => {
  const rollout = (reason: string) => create(RolloutStatusSchema, { reason });

  it.each([
    { reason: 'settling', text: '2 of 2 ready, settling (2s)' },
    { reason: '1 of 2 replicas are ready, 1 not yet', text: '2 of 2 ready' },
    { reason: '1 of 2 replicas are ready, 2 not yet (1 extra)', text: '2 of 2 ready' },
    { reason: '2 of 2 replicas are ready, 1 extra not yet', text: '2 of 2 ready' },
    {
      reason: '0 of 3 ready: replica a-1: waiting for port http',
      text: '2 of 2 ready: replica a-1: waiting for port http',
    },
    { reason: 'step 1 of 2: waits 5m', text: '2 of 2 ready: step 1 of 2: waits 5m' },
    { reason: '', text: '2 of 2 ready' },
  ])('turns the reason "$reason" into "$text"', ({ reason, text }) => {
    const workload = aState({ rollout: rollout(reason) });
    expect(describeProgress(workload)).toBe(text);
    expect(describeProgress(workload)).not.toMatch(/not ready|silent/);
  });
});

describe('getFraction', () => {
  it('is the share of ready replicas of the newest version', () => {
    expect(getFraction(aRollout({}, { updated: 3 }))).toBe(0.75);
    expect(getFraction(aState({ desiredReplicas: 0 }))).toBe(0);
  });

  it('follows from the number of the coordinator when the answer omits replicas', () => {
    const status = { omittedReplicas: 96, desiredReplicas: 100, updatedReadyReplicas: 60 };
    expect(getFraction(aState(status, aRollout({}, { updated: 3 })))).toBe(0.6);
  });
});
