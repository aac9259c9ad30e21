import { FILTERS } from './pipeline.js';
import { PLACEMENT_FILTERS } from './reasons.js';

describe('FILTERS', () => {
  it('report the names of PLACEMENT_FILTERS in their order', () => {
    const names = new Set(FILTERS.flatMap((filter) => filter.names));
    expect([...names]).toEqual(PLACEMENT_FILTERS);
  });
});
