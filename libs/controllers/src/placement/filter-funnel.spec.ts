import fc from 'fast-check';
import { PlacementReason_Kind as Kind } from '@cloudless/api';
import { PLACEMENT_FILTERS } from '@cloudless/scheduler';
import { countRemovedNodes, type FilteredNode } from './filter-funnel.js';

const refused = (...filters: readonly (typeof PLACEMENT_FILTERS)[number][]): FilteredNode => ({
  fits: false,
  reasons: filters.map((filter) => ({ filter })),
});

describe('countRemovedNodes', () => {
  it('counts each node under the first filter that it fails, in the order of the filters', () => {
    const nodes = [refused('memory', 'zone'), refused('memory'), refused('cpu'), { fits: true }];
    expect(countRemovedNodes(nodes as readonly FilteredNode[])).toMatchObject([
      { kind: Kind.ZONE, removed: 1, left: 3 },
      { kind: Kind.CPU, removed: 1, left: 2 },
      { kind: Kind.MEMORY, removed: 1, left: 1 },
    ]);
  });

  it('returns no filters when every node fits, and for a cluster without nodes', () => {
    expect(countRemovedNodes([{ fits: true }])).toEqual([]);
    expect(countRemovedNodes([])).toEqual([]);
  });

  it('removes every node that does not fit exactly once, whatever the order of the nodes', () => {
    const arbNode: fc.Arbitrary<FilteredNode> = fc.oneof(
      fc.constant({ fits: true } as const),
      fc
        .uniqueArray(fc.constantFrom(...PLACEMENT_FILTERS), { minLength: 1, maxLength: 4 })
        .map((filters) => refused(...filters)),
    );
    fc.assert(
      fc.property(fc.array(arbNode, { maxLength: 20 }), (nodes) => {
        const funnel = countRemovedNodes(nodes);
        const fitting = nodes.filter(({ fits }) => fits).length;
        expect(funnel.reduce((sum, { removed }) => sum + removed, fitting)).toBe(nodes.length);
        expect(funnel.at(-1)?.left ?? nodes.length).toBe(fitting);
        expect(countRemovedNodes([...nodes].reverse())).toEqual(funnel);
      }),
    );
  });
});
