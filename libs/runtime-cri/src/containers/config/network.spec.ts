import { toContainerId } from '@cloudless/base';
import { resolveHostname } from './network.js';

describe('host name of a container', () => {
  const rest = '0'.repeat(52);

  it.each([
    { name: 'the first 12 characters of the id', id: `1234567890a2${rest}`, host: '1234567890a2' },
    {
      name: 'characters that end with the first letter, when the first 12 are digits',
      id: `857023469503b${rest.slice(1)}`,
      host: '57023469503b',
    },
    { name: 'digits of an id without letters', id: `857023469503${rest}`, host: '857023469503' },
  ])('is $name', ({ id, host }) => {
    expect(resolveHostname({ containerId: toContainerId(id) })).toBe(host);
  });

  it('is the requested name', () => {
    const network = { hostname: 'shop-1' };
    expect(resolveHostname({ containerId: toContainerId('1'.repeat(64)), network })).toBe('shop-1');
  });
});
