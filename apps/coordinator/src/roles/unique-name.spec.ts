import { create } from '@bufbuild/protobuf';
import { CoordinatorRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { CoordinatorPresence, openClusterState, type ClusterState } from '@cloudless/cluster-state';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { PREDECESSOR_MS, requireUniqueName } from './unique-name.js';

let clock: ManualClock;
let store: StateStore;
let state: ClusterState;
const presences: CoordinatorPresence[] = [];

beforeEach(async () => {
  clock = new ManualClock();
  store = createMemoryStateStore({ clock });
  state = await openClusterState({
    ...{ store, clock, random: createSeededRandom(1), log: silentLog, holder: 'c1/new' },
    leadership: 'follow',
  });
});
afterEach(async () => {
  await Promise.all(presences.splice(0).map((presence) => presence.close()));
  await state.close();
  await store.close();
});

/** Starts the presence of a process; with `isCrashed`, one that renews nothing any more. */
async function run(id: string, address: string, { isCrashed = false } = {}): Promise<void> {
  const never = (): Promise<never> => Promise.reject(new Error('the process has ended'));
  presences.push(
    new CoordinatorPresence({
      store: isCrashed ? Object.assign(Object.create(store), { keepAlive: never }) : store,
      ...{ clock, random: createSeededRandom(2), log: silentLog },
      record: create(CoordinatorRecordSchema, { id, address, holder: `${id}/old` }),
    }),
  );
  await clock.advance(0);
}

/** Starts the coordinator `c1`, and returns what has become of it. */
function start(): { outcome: string } {
  const result = { outcome: 'waits' };
  requireUniqueName(
    state,
    { clock, log: silentLog },
    { id: 'c1', address: 'https://10.0.0.1:8080', holder: 'c1/new' },
  ).then(
    () => (result.outcome = 'starts'),
    (reason: unknown) => (result.outcome = String((reason as Error).message)),
  );
  return result;
}

describe('a coordinator that starts', () => {
  it('starts at once beside coordinators with other names', async () => {
    await run('c2', 'https://10.0.0.2:8080');
    const started = start();
    await clock.advance(0);
    expect(started.outcome).toBe('starts');
  });

  it('starts at once when the record with its name has its own address', async () => {
    await run('c1', 'https://10.0.0.1:8080', { isCrashed: true });
    const started = start();
    await clock.advance(0);
    expect(started.outcome).toBe('starts');
  });

  it('waits for the record of a crashed process with its name to disappear', async () => {
    await run('c1', 'https://10.0.0.9:8080', { isCrashed: true });
    const started = start();
    await clock.advance(9_000);
    expect(started.outcome).toBe('waits');
    await clock.advance(1_500);
    expect(started.outcome).toBe('starts');
  });

  it('fails while another process with its name runs, and says what to do', async () => {
    await run('c1', 'https://10.0.0.9:8080');
    const started = start();
    await clock.advance(PREDECESSOR_MS - 1);
    expect(started.outcome).toBe('waits');
    await clock.advance(1);
    expect(started.outcome).toBe(
      'another coordinator with the name "c1" runs at https://10.0.0.9:8080; start this coordinator with a --name of its own, or stop the other one first',
    );
  });
});
