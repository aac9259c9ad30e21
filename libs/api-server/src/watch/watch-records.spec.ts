import {
  NodeStatus_Phase as NodePhase,
  WatchNodesResponse_Kind as Kind,
  type WatchNodesResponse,
} from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';

let bed: ApiTestBed;
let stopping: AbortController;
beforeEach(async () => {
  bed = await ApiTestBed.open();
  stopping = new AbortController();
  await bed.putNode('node-1', { labels: { disk: 'ssd' } });
  await bed.putNode('node-2', { labels: { disk: 'hdd' } });
});
afterEach(async () => {
  stopping.abort();
  await bed.stop();
});

/**
 * Starts a watch of nodes that collects its items. `texts` returns them as `KIND id`; `failure`
 * resolves with the error of the watch.
 */
function watch(request: Parameters<ApiTestBed['client']['watchNodes']>[0]) {
  const items: WatchNodesResponse[] = [];
  const failure = (async () => {
    for await (const item of bed.client.watchNodes(request, { signal: stopping.signal }))
      items.push(item);
  })().catch((reason: unknown) => reason);
  return {
    items,
    failure,
    texts: () => items.map(({ kind, node }) => `${Kind[kind]} ${node?.id ?? ''}`.trim()),
  };
}

describe('watchRecords', () => {
  it('sends the current items, then SYNCED, then every change and deletion', async () => {
    const { texts } = watch({});
    await bed.settle();
    expect(texts()).toEqual(['PUT node-1', 'PUT node-2', 'SYNCED']);
    await bed.client.cordonNode({ nodeId: 'node-2' });
    await bed.settle();
    await bed.client.removeNode({ nodeId: 'node-1', force: true });
    await bed.settle();
    expect(texts().slice(3)).toEqual(['PUT node-2', 'DELETED node-1']);
  });

  it('sends only nodes that match the label selector, and DELETED when a node stops matching', async () => {
    const { texts } = watch({ labelSelector: 'disk=ssd' });
    await bed.settle();
    await bed.client.cordonNode({ nodeId: 'node-2' });
    await bed.client.updateNode({ nodeId: 'node-1', setLabels: { disk: 'hdd' } });
    await bed.settle();
    expect(texts()).toEqual(['PUT node-1', 'SYNCED', 'DELETED node-1']);
  });

  it('sends a bookmark after 15 s without another item', async () => {
    const { texts } = watch({});
    await bed.clock.advance(14_999);
    expect(texts()).toHaveLength(3);
    await bed.clock.advance(1);
    expect(texts().slice(3)).toEqual(['BOOKMARK']);
  });

  it('sends the changes and deletions after a revision, then a bookmark, when it is resumed there', async () => {
    const { revision } = bed.state.view();
    await bed.client.removeNode({ nodeId: 'node-1', force: true });
    await bed.client.cordonNode({ nodeId: 'node-2' });
    await bed.putNode('node-3');
    const { texts, items } = watch({ afterRevision: revision });
    await bed.settle();
    expect(texts().toSorted()).toEqual(['BOOKMARK', 'DELETED node-1', 'PUT node-2', 'PUT node-3']);
    expect(texts().at(-1)).toBe('BOOKMARK');
    expect(items.at(-1)?.revision).toBe(bed.state.view().revision);
  });

  it('sends a change of liveness, also to a watch that is resumed at the revision of the change', async () => {
    const first = watch({ nodeId: 'node-1' });
    await bed.settle();
    const { revision } = bed.state.view();
    bed.nodes.setPhase('node-1', NodePhase.READY);
    await bed.settle();
    expect(first.items.at(-1)?.node?.status?.phase).toBe(NodePhase.READY);
    const resumed = watch({ nodeId: 'node-1', afterRevision: revision });
    await bed.settle();
    expect(resumed.texts()).toEqual(['PUT node-1', 'BOOKMARK']);
  });

  it('sends changes of usage only when the request includes usage', async () => {
    const plain = watch({ nodeId: 'node-1' });
    const withUsage = watch({ nodeId: 'node-1', includeUsage: true });
    await bed.settle();
    const usage = {
      $typeName: 'cloudless.api.NodeUsage' as const,
      ...{ cpuMillis: 7, memoryBytes: 0n, storageBytes: 0n },
    };
    bed.nodes.updateStatus('node-1', [], { usage });
    await bed.settle();
    expect(plain.texts()).toEqual(['PUT node-1', 'SYNCED']);
    expect(withUsage.items.at(-1)?.node?.status?.usage?.cpuMillis).toBe(7);
  });

  it('fails with OUT_OF_RANGE when it is resumed at a revision that the store has not reached', async () => {
    const { failure } = watch({ afterRevision: 99_999n });
    await bed.settle();
    expect(String(await failure)).toContain('out_of_range');
  });
});
