import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Event_Category as Category, Event_Severity as Severity } from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import { createMemoryStateStore, type StateStore } from '@cloudless/state-store';
import { ApiTestBed } from '../testing/api-test-bed.js';

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
  await bed.putNode('node-1');
  await bed.putNode('node-2');
});
afterEach(() => bed.stop());

/** Reads `count` items of a watch: the reasons of the events, or `bookmark`. */
async function readEvents(
  request: Parameters<ApiTestBed['client']['watchEvents']>[0],
  count: number,
): Promise<readonly string[]> {
  const reasons: string[] = [];
  const stopping = new AbortController();
  try {
    for await (const { event } of bed.client.watchEvents(request, { signal: stopping.signal })) {
      reasons.push(event?.reason ?? 'bookmark');
      if (reasons.length === count) break;
    }
  } finally {
    stopping.abort();
  }
  return reasons;
}

describe('watchEvents', () => {
  it.each(['garbage', '1-2', '0000000001-', '0000000001-00000000x1', ' 0000000001-0000000001'])(
    'rejects the malformed after_id %j with an error that names the field',
    async (afterId) => {
      await expect(readEvents({ afterId }, 1)).rejects.toThrow(
        '[invalid_argument] after_id: is not the id of an event',
      );
    },
  );

  it('sends the events after after_id, then a bookmark', async () => {
    await bed.client.cordonNode({ nodeId: 'node-1' });
    const afterId = bed.events().at(-1)?.id ?? '';
    await bed.client.uncordonNode({ nodeId: 'node-1' });
    expect(await readEvents({ afterId }, 3)).toEqual([
      'UncordonNode',
      'NodeUncordoned',
      'bookmark',
    ]);
  });

  it('sends all later events when after_id is not the id of a stored event', async () => {
    await bed.client.cordonNode({ nodeId: 'node-1' });
    const afterId = '0000000000-0000000000';
    expect(await readEvents({ afterId }, 2)).toEqual(['CordonNode', 'NodeCordoned']);
  });

  it('sends only a bookmark when the request has no position and nothing happens', async () => {
    await bed.client.cordonNode({ nodeId: 'node-1' });
    expect(await readEvents({}, 1)).toEqual(['bookmark']);
  });

  it('sends the events after after_revision, then a bookmark', async () => {
    const { revision } = bed.state.view();
    await bed.client.cordonNode({ nodeId: 'node-1' });
    expect(await readEvents({ afterRevision: revision }, 3)).toEqual([
      'CordonNode',
      'NodeCordoned',
      'bookmark',
    ]);
  });

  it.each([
    { request: { nodeId: 'node-2' }, expected: ['CordonNode', 'NodeCordoned', 'bookmark'] },
    {
      request: { categories: [Category.AUDIT] },
      expected: ['CordonNode', 'CordonNode', 'bookmark'],
    },
    { request: { workload: 'web' }, expected: ['bookmark'] },
    { request: { namespace: 'default' }, expected: ['bookmark'] },
  ])('sends only events that match $request', async ({ request, expected }) => {
    const { revision } = bed.state.view();
    await bed.client.cordonNode({ nodeId: 'node-1' });
    await bed.client.cordonNode({ nodeId: 'node-2' });
    expect(await readEvents({ afterRevision: revision, ...request }, expected.length)).toEqual(
      expected,
    );
  });

  it('rejects after_id together with after_revision', async () => {
    const afterId = '0000000001-0000000001';
    await expect(readEvents({ afterId, afterRevision: 1n }, 1)).rejects.toThrow(
      'after_revision: cannot be combined with after_id',
    );
  });

  it('gives the revision of a commit only to its last event, so that a resumed watch misses no event', async () => {
    const { revision } = bed.state.view();
    await bed.client.cordonNode({ nodeId: 'node-1' });
    const items: bigint[] = [];
    for await (const item of bed.client.watchEvents({ afterRevision: revision })) {
      items.push(item.revision);
      if (items.length === 2) break;
    }
    expect(items).toEqual([revision, revision + 1n]);
  });
});

describe('many watches of events', () => {
  it('share the watch of the coordinator, also those that resume', async () => {
    const clock = new ManualClock();
    const inner = createMemoryStateStore({ clock });
    let watches = 0;
    const watch: StateStore['watch'] = (request) => {
      watches += 1;
      return inner.watch(request);
    };
    const store = Object.assign(Object.create(inner) as StateStore, { watch });
    await bed.stop();
    bed = await ApiTestBed.open({ clock, store });
    await bed.putNode('node-1');
    const { revision: afterRevision } = bed.state.view();
    await bed.client.cordonNode({ nodeId: 'node-1' });
    const read = Promise.all(
      Array.from({ length: 30 }, (_, index) =>
        readEvents(index % 2 === 0 ? { afterRevision } : {}, index % 2 === 0 ? 3 : 1),
      ),
    );
    const resumed = ['CordonNode', 'NodeCordoned', 'bookmark'];
    for (const [index, reasons] of (await read).entries())
      expect(reasons).toEqual(index % 2 === 0 ? resumed : ['bookmark']);
    expect(watches).toBe(1);
  });
});

describe('the filters of listEvents', () => {
  it.each([
    {
      name: 'reasons, in any case',
      request: { reasons: ['nodecordoned'] },
      found: ['NodeCordoned'],
    },
    { name: 'severities', request: { severities: [Severity.ERROR] }, found: [] },
    { name: 'a time in the future', request: { since: timestampFromMs(4e12) }, found: [] },
    {
      name: 'a time in the past',
      request: { since: timestampFromMs(0), categories: [Category.MEMBERSHIP] },
      found: ['NodeCordoned'],
    },
  ])('select by $name', async ({ request, found }) => {
    await bed.client.cordonNode({ nodeId: 'node-1' });
    const { events } = await bed.client.listEvents(request);
    expect(events.map(({ reason }) => reason)).toEqual(found);
  });
});
