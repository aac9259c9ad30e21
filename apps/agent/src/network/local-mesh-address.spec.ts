import { findSourceAddress, LocalMeshAddress } from './local-mesh-address.js';

/** Addresses of names, and local addresses of packets to addresses; others have none. */
const NAMES: Readonly<Record<string, readonly string[]>> = {
  'c.example': ['2001:db8::1', '203.0.113.1'],
  'here.example': ['127.0.1.1'],
};
const SOURCES: Readonly<Record<string, string>> = {
  ...{ '10.0.0.1': '10.0.0.5', '203.0.113.1': '192.0.2.5', 'fd00::1': 'fd00::5' },
  ...{ '127.0.1.1': '127.0.0.1', '10.0.0.5': '10.0.0.5', 'fe80::1': 'fe80::5' },
};

const open = (coordinators: readonly string[]): LocalMeshAddress =>
  new LocalMeshAddress({
    ...{ port: 9_443, coordinators: () => coordinators },
    resolve: async (host) => {
      if (/^[\d.]+$|:/.test(host)) return [host];
      const addresses = NAMES[host];
      if (addresses === undefined) throw new Error(`getaddrinfo ENOTFOUND ${host}`);
      return addresses;
    },
    findSource: async (address) => {
      const source = SOURCES[address];
      if (source === undefined) throw new Error(`connect ENETUNREACH ${address}`);
      return source;
    },
    listAddresses: () => ['127.0.0.1', '10.0.0.5', 'fd00::5'],
  });

describe('the address of a machine for the proxies of other nodes', () => {
  it.each([
    { name: 'an address', coordinators: ['https://10.0.0.1:8080'], host: '10.0.0.5' },
    { name: 'an IPv6 address', coordinators: ['https://[fd00::1]:8080'], host: 'fd00::5' },
    {
      name: 'a name, by its first address with a route',
      coordinators: ['https://c.example:8080'],
      host: '192.0.2.5',
    },
    {
      name: 'a coordinator on this machine, at an address for others',
      coordinators: ['https://10.0.0.5:8080'],
      host: '10.0.0.5',
    },
    {
      name: 'the second one when the first has no address',
      coordinators: ['https://gone.example:8080', 'https://10.0.0.1:8080'],
      host: '10.0.0.5',
    },
    { name: 'a name on loopback', coordinators: ['https://here.example:8080'], host: undefined },
    {
      name: 'a name on loopback, before others',
      coordinators: ['https://here.example:8080', 'https://10.0.0.1:8080'],
      host: undefined,
    },
  ])('is $host for $name', async ({ coordinators, host }) => {
    const expected = host === undefined ? undefined : { host, port: 9_443 };
    expect(await open(coordinators).find()).toEqual(expected);
  });

  it('is missing with the reason for each coordinator', async () => {
    const coordinators = ['gone.example', '198.51.100.1', '[fe80::1]'].map(
      (host) => `https://${host}:8080`,
    );
    await expect(open(coordinators).find()).rejects.toMatchObject({
      kind: 'unavailable',
      message:
        'this machine has no address for connections to its coordinators (getaddrinfo ENOTFOUND gone.example; connect ENETUNREACH 198.51.100.1; fe80::5, the way to fe80::1, is a link-local address)',
    });
  });

  it('is gone when no interface has it', () => {
    const address = open([]);
    expect([address.has('10.0.0.5'), address.has('10.0.0.6')]).toEqual([true, false]);
  });

  it('stays when the interfaces cannot be listed', () => {
    const listAddresses = (): never => {
      throw new Error('no /proc');
    };
    const options = { port: 1, coordinators: () => [], listAddresses };
    expect(new LocalMeshAddress(options).has('10.0.0.6')).toBe(true);
  });
});

describe('findSourceAddress', () => {
  it.each(['127.0.0.1', '::1'])('is %s on loopback', async (address) => {
    expect(await findSourceAddress(address)).toBe(address);
  });

  it('fails for an address to which the system sends no packets', async () => {
    await expect(findSourceAddress('255.255.255.255')).rejects.toThrow('connect EACCES');
  });
});
