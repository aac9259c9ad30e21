import { create } from '@bufbuild/protobuf';
import { RolloutStatus_Phase as Phase } from '@cloudless/api';
import { ControlRecordSchema, RolloutRecordSchema } from '@cloudless/api/store';
import { ApiTestBed } from '../testing/api-test-bed.js';

let bed: ApiTestBed;
let uid: string;
beforeEach(async () => {
  bed = await ApiTestBed.open();
  ({ uid } = await bed.client.createWorkload({ name: 'web', spec: { command: ['one'] } }));
});
afterEach(() => bed.stop());

/** Sets the control record as the workload reconciler would. */
async function setRollout(phase: Phase, waitsForPromotion = false): Promise<void> {
  const version = bed.state.view().workload(uid)?.value.version ?? 0;
  const rollout = create(RolloutRecordSchema, { version, waitsForPromotion });
  const record = create(ControlRecordSchema, {
    uid,
    nextSequence: 1n,
    rolloutPhase: phase,
    rollout,
  });
  await bed.state.commit(bed.state.transaction().put('control', uid, record));
}
const control = () => bed.state.view().control(uid)?.value;

describe('RolloutHandlers', () => {
  it('pauses a rollout in progress once when it is paused twice, and resumes it', async () => {
    await setRollout(Phase.IN_PROGRESS);
    await bed.client.pauseRollout({ name: 'web' });
    expect(control()?.pausedVersion).toBe(1);
    await bed.client.pauseRollout({ name: 'web' });
    expect(bed.events('RolloutPauseRequested')).toHaveLength(1);
    await bed.client.resumeRollout({ name: 'web' });
    expect(control()).toMatchObject({ pausedVersion: 0, rollout: { retry: true } });
  });

  it('rejects the pause of a completed rollout, and the resume of a rollout in progress', async () => {
    await setRollout(Phase.COMPLETED);
    await expect(bed.client.pauseRollout({ name: 'web' })).rejects.toThrow('nothing to pause');
    await setRollout(Phase.IN_PROGRESS);
    await expect(bed.client.resumeRollout({ name: 'web' })).rejects.toThrow('is not paused');
  });

  it('promotes a rollout only when it waits for a promotion and the given version is its version', async () => {
    await setRollout(Phase.IN_PROGRESS);
    await expect(bed.client.promoteRollout({ name: 'web' })).rejects.toThrow('does not wait');
    await setRollout(Phase.PAUSED, true);
    await expect(bed.client.promoteRollout({ name: 'web', version: 7 })).rejects.toThrow(
      'not version 7',
    );
    await bed.client.promoteRollout({ name: 'web', version: 1 });
    expect(control()?.rollout?.promoted).toBe(true);
  });

  it('undoes to an older version, and rejects the current version and an unknown version', async () => {
    await bed.client.updateWorkload({ name: 'web', spec: { command: ['two'] } });
    await expect(bed.client.undoRollout({ name: 'web', toVersion: 2 })).rejects.toThrow(
      'has the template of version 2 already',
    );
    await expect(bed.client.undoRollout({ name: 'web', toVersion: 9 })).rejects.toThrow(
      'the kept versions are 1, 2',
    );
    const undone = await bed.client.undoRollout({ name: 'web', toVersion: 1 });
    expect(undone).toMatchObject({ generation: 3n, spec: { command: ['one'] } });
  });

  it('creates a new version with a restart time when a workload is restarted', async () => {
    const restarted = await bed.client.restartRollout({ name: 'web' });
    expect(restarted.spec?.restartedAt).toBeDefined();
    expect(bed.state.view().workload(uid)?.value.version).toBe(2);
  });
});
