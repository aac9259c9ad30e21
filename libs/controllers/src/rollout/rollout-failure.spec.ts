import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import {
  ReplicaRecordSchema,
  RolloutRecordSchema,
  VersionRecordSchema,
} from '@cloudless/api/store';
import { countFailures } from './rollout-failure.js';

/** Version 3 has the template of version 2. */
const view: Parameters<typeof countFailures>[0]['view'] = {
  version: (_uid, version) =>
    create(VersionRecordSchema, { version, sameAs: version === 3 ? 2 : 0 }),
};
const rollout = create(RolloutRecordSchema, { version: 2, firstSequence: 10n });

describe('countFailures', () => {
  it.each<{
    name: string;
    replica: MessageInitShape<typeof ReplicaRecordSchema>;
    failures: number;
  }>([
    { name: 'a running replica', replica: {}, failures: 0 },
    { name: 'a restarted replica', replica: { restarts: 2 }, failures: 2 },
    {
      name: 'a restarted replica with failed starts',
      replica: { restarts: 3, failedStarts: 2 },
      failures: 3,
    },
    {
      name: 'a replica that never ran',
      replica: { phase: Phase.STARTING, restarts: 2, failedStarts: 2 },
      failures: 2,
    },
    { name: 'a failed replica', replica: { phase: Phase.FAILED }, failures: 1 },
    {
      name: 'a failed replica with earlier restarts',
      replica: { phase: Phase.FAILED, restarts: 2 },
      failures: 3,
    },
    {
      name: 'a replica whose node was lost',
      replica: { phase: Phase.FAILED, lost: true, restarts: 1 },
      failures: 1,
    },
    {
      name: 'a replica from before the rollout',
      replica: { phase: Phase.FAILED, restarts: 2, sequence: 9n },
      failures: 0,
    },
    {
      name: 'a replica of another version',
      replica: { phase: Phase.FAILED, version: 1 },
      failures: 0,
    },
    {
      name: 'a replica of a version with the same template',
      replica: { restarts: 1, version: 3 },
      failures: 1,
    },
  ])('returns $failures for $name', ({ replica, failures }) => {
    const record = create(ReplicaRecordSchema, {
      uid: 'web',
      version: 2,
      sequence: 10n,
      phase: Phase.RUNNING,
      ...replica,
    });
    expect(countFailures({ view, rollout }, record)).toBe(failures);
  });

  it('returns 0 without a rollout', () => {
    const record = create(ReplicaRecordSchema, { uid: 'web', version: 2, restarts: 5 });
    expect(countFailures({ view, rollout: undefined }, record)).toBe(0);
  });
});
