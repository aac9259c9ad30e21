import { readFile } from 'node:fs/promises';
import { create } from '@bufbuild/protobuf';
import { NodeRecordSchema, ReplicaRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore } from '@cloudless/state-store';
import { copyReplica, openClusterState } from './index.js';

it('runs the example of the README', async () => {
  // <example>
  const clock = new ManualClock();
  const options = {
    store: createMemoryStateStore({ clock }),
    clock,
    random: createSeededRandom(1),
    log: silentLog,
  };
  const state = await openClusterState({ ...options, holder: 'one' });

  const node = create(NodeRecordSchema, { id: 'edge-1' });
  const replica = create(ReplicaRecordSchema, {
    id: 'a1-1',
    uid: 'a1',
    sequence: 1n,
    desiredRunning: true,
  });
  await state.commit(state.transaction().put('node', node.id, node).createReplica(replica));
  // The view includes the writes of this process.
  expect([...state.view().unplaced()].map(({ value }) => value.id)).toEqual(['a1-1']);

  // Plan from the view, then commit if the replica is unchanged since it was read.
  const read = state.view().replica('a1-1');
  if (read === undefined) throw new Error('it was committed above');
  const placed = copyReplica(read.value, { nodeId: 'edge-1' });
  const event = {
    reason: 'ReplicaPlaced',
    message: 'replica a1-1 goes to edge-1',
    replicaId: 'a1-1',
  };
  await state.commit(state.transaction().updateReplica(read, placed).event(event));
  expect([...state.view().replicasOn('edge-1')]).toHaveLength(1);
  await expect(state.commit(state.transaction().updateReplica(read, placed))).rejects.toMatchObject(
    { kind: 'conflict' },
  );

  // Another coordinator takes the leadership: the first one can no longer commit anything.
  const successor = await openClusterState({ ...options, holder: 'two' });
  expect(successor.epoch).toBe(state.epoch + 1n);
  await expect(state.commit(state.transaction().delete('node', 'edge-1'))).rejects.toMatchObject({
    kind: 'unavailable',
  });
  // </example>
  await state.close();
  await successor.close();
});

it('has the example of the README, word for word', async () => {
  const spec = await readFile(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const example =
    /\/\/ <example>\n([^]*?) *\/\/ <\/example>/u.exec(spec)?.[1]?.replaceAll(/^ {2}/gmu, '') ??
    'no example';
  expect(await readFile(new URL('../README.md', import.meta.url), 'utf8')).toContain(example);
});
