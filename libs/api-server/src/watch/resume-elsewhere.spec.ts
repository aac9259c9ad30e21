import {
  NodeStatus_Phase as NodePhase,
  createCoordinatorClient,
  type WatchReplicasResponse,
} from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { FollowerBed } from '../testing/follower-bed.js';

let bed: ApiTestBed;
let follower: FollowerBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
  await bed.putNode('node-1');
  await bed.putReplica('w-0', { nodeId: 'node-1' });
  follower = await FollowerBed.open(bed);
});
afterEach(async () => {
  await follower.close();
  await bed.stop();
});

describe('a watch that is resumed at another coordinator', () => {
  it('shows a status of a node that changed there before the revision of the client', async () => {
    const client = createCoordinatorClient(follower.transport);
    await bed.putNode('node-2');
    bed.nodes.setPhase('node-1', NodePhase.LOST);
    // The client has this revision from a coordinator that heard of the loss later than of it.
    const afterRevision = await bed.state.commit(
      bed.state.transaction().event({ reason: 'Something' }),
    );
    await follower.state.waitForRevision(afterRevision);
    const nodes = client.watchNodes({ afterRevision })[Symbol.asyncIterator]();
    const shown = [await nodes.next(), await nodes.next()].map(({ value }) => value?.node);
    expect(shown.map((node) => [node?.id, node?.status?.phase])).toContainEqual([
      'node-1',
      NodePhase.LOST,
    ]);
    const replicas = client.watchReplicas({ afterRevision })[Symbol.asyncIterator]();
    const update = (await replicas.next()).value as WatchReplicasResponse | undefined;
    expect(update?.workloads.flatMap((item) => item.replicas.map(({ id }) => id))).toEqual(['w-0']);
    await Promise.all([nodes.return?.(), replicas.return?.()]);
  });

  it('is never behind the revision of the client meanwhile', async () => {
    const client = createCoordinatorClient(follower.transport);
    await bed.putNode('node-2');
    const { revision: afterRevision } = await bed.client.listWorkloads({});
    await follower.state.waitForRevision(afterRevision);
    const watch = client.watchNodes({ afterRevision })[Symbol.asyncIterator]();
    for (let item = 0; item < 3; item += 1)
      expect((await watch.next()).value?.revision).toBeGreaterThanOrEqual(afterRevision);
    await watch.return?.();
  });
});
