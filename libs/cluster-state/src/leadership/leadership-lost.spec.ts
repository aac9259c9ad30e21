import { create } from '@bufbuild/protobuf';
import { NodeRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog, type Log, type LogFields } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore, type ChangeBatch, type StateStore } from '@cloudless/state-store';
import { LeadershipLostError, openClusterState, type ClusterState } from '../index.js';

const open = (store: StateStore, log: Log = silentLog): Promise<ClusterState> =>
  openClusterState({
    store,
    clock: new ManualClock(),
    random: createSeededRandom(1),
    log,
    holder: 'test',
  });
const putNode = (state: ClusterState, id: string): Promise<unknown> =>
  state.commit(state.transaction().put('node', id, create(NodeRecordSchema, { id })));

/**
 * A store whose watches deliver nothing after `cutWatch` was called, as with an LMDB file to which
 * another process writes.
 */
function withCuttableWatch(store: StateStore): {
  readonly store: StateStore;
  readonly cutWatch: () => void;
} {
  let isCut = false;
  async function* filterBatches(batches: AsyncIterable<ChangeBatch>): AsyncGenerator<ChangeBatch> {
    for await (const batch of batches) if (!isCut) yield batch;
  }
  const watch: StateStore['watch'] = (request) => filterBatches(store.watch(request));
  const same = new Proxy(store, {
    get: (target, name) => (name === 'watch' ? watch : bindMember(target, name)),
  });
  return { store: same, cutWatch: () => void (isCut = true) };
}

function bindMember(target: StateStore, name: string | symbol): unknown {
  const value: unknown = Reflect.get(target, name);
  return typeof value === 'function' ? value.bind(target) : value;
}

describe('a coordinator whose leadership was taken by another process', () => {
  it('refuses each write at once, even when its watch does not report the new leader', async () => {
    const shared = createMemoryStateStore({ clock: new ManualClock() });
    const { store, cutWatch } = withCuttableWatch(shared);
    const first = await open(store);
    cutWatch();
    const second = await open(shared);
    await putNode(second, 'theirs');
    await expect(putNode(first, 'ours')).rejects.toBeInstanceOf(LeadershipLostError);
    await expect(putNode(first, 'again')).rejects.toMatchObject({ kind: 'unavailable' });
    expect({ first: first.isLeading, second: second.isLeading }).toEqual({
      first: false,
      second: true,
    });
    expect([...second.view().nodes()].map(({ value }) => value.id)).toEqual(['theirs']);
    await Promise.all([first.close(), second.close()]);
  });

  it('notifies each listener of the loss once, also a listener added later, and logs one error', async () => {
    const logged: [string, LogFields | undefined][] = [];
    const log: Log = {
      ...silentLog,
      error: (message, fields) => void logged.push([message, fields]),
      child: () => log,
    };
    const shared = createMemoryStateStore({ clock: new ManualClock() });
    const { store, cutWatch } = withCuttableWatch(shared);
    const first = await open(store, log);
    const notified: unknown[] = [];
    first.onLeadershipLost((reason) => notified.push(reason));
    cutWatch();
    const second = await open(shared);
    await Promise.allSettled([putNode(first, 'a'), putNode(first, 'b')]);
    expect(notified).toEqual([expect.any(LeadershipLostError)]);
    expect(logged).toEqual([['leadership lost', expect.objectContaining({ epoch: 1n })]]);
    // a late listener is called immediately
    first.onLeadershipLost((reason) => notified.push(reason));
    expect(notified).toHaveLength(2);
    await Promise.all([first.close(), second.close()]);
  });

  it('notifies listeners when the watch shows the loss, without a write of its own', async () => {
    const shared = createMemoryStateStore({ clock: new ManualClock() });
    const first = await open(shared);
    const lost = new Promise((resolve) => first.onLeadershipLost(resolve));
    const second = await open(shared);
    expect(await lost).toBeInstanceOf(LeadershipLostError);
    await Promise.all([first.close(), second.close()]);
  });
});
