import { expect, it } from '@jest/globals';
import fc from 'fast-check';
import { containsNetwork } from '@cloudless/api';
import { arbNetwork } from '../testing/networks.js';
import { selectOutermost } from './select-outermost.js';

it('returns some of the networks, without overlap, that contain all of them', () => {
  fc.assert(
    fc.property(fc.array(arbNetwork, { maxLength: 12 }), (networks) => {
      const selected = selectOutermost(networks);
      expect(networks).toEqual(expect.arrayContaining([...selected]));
      for (const network of networks)
        expect(selected.filter((outer) => containsNetwork(outer, network))).toHaveLength(1);
    }),
  );
});
