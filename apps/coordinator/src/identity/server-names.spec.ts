import { createServerNames, isServerName } from './server-names.js';

const sources = {
  host: '127.0.0.1',
  advertise: [] as readonly string[],
  hostname: 'machine-1',
  addresses: ['127.0.0.1', '::1', '10.0.0.5', 'fe80::1', '2001:db8::5'],
};

describe('createServerNames', () => {
  it.each([
    {
      name: 'names only this machine when the coordinator listens on loopback',
      given: {},
      expected: {
        dnsNames: ['localhost'],
        ipAddresses: ['127.0.0.1', '::1'],
        primary: '127.0.0.1',
      },
    },
    {
      name: 'names all addresses and the host name when the coordinator listens on all addresses',
      given: { host: '0.0.0.0' },
      expected: {
        dnsNames: ['localhost', 'machine-1'],
        ipAddresses: ['127.0.0.1', '::1', '10.0.0.5', 'fe80::1', '2001:db8::5'],
        primary: '10.0.0.5',
      },
    },
    {
      name: 'gives other machines the first advertised name, and adds all of them',
      given: { host: '::', advertise: ['coordinator.example', '192.0.2.1'] },
      expected: {
        dnsNames: ['localhost', 'machine-1', 'coordinator.example'],
        ipAddresses: ['127.0.0.1', '::1', '10.0.0.5', 'fe80::1', '2001:db8::5', '192.0.2.1'],
        primary: 'coordinator.example',
      },
    },
    {
      name: 'gives other machines the host name when the machine has no other address',
      given: { host: '0.0.0.0', addresses: ['127.0.0.1'] },
      expected: {
        dnsNames: ['localhost', 'machine-1'],
        ipAddresses: ['127.0.0.1', '::1'],
        primary: 'machine-1',
      },
    },
    {
      name: 'leaves out a host name that no certificate can contain',
      given: { host: '0.0.0.0', hostname: 'my machine', addresses: [] },
      expected: {
        dnsNames: ['localhost'],
        ipAddresses: ['127.0.0.1', '::1'],
        primary: 'my machine',
      },
    },
    {
      name: 'reads an IPv6 address in brackets',
      given: { host: '[2001:db8::5]' },
      expected: {
        dnsNames: ['localhost'],
        ipAddresses: ['127.0.0.1', '::1', '2001:db8::5'],
        primary: '2001:db8::5',
      },
    },
  ])('$name', ({ given, expected }) => {
    expect(createServerNames({ ...sources, ...given })).toEqual(expected);
  });
});

describe('isServerName', () => {
  it.each(['a.example', 'localhost', '10.0.0.5', '2001:db8::1', 'web_1'])('accepts %s', (name) => {
    expect(isServerName(name)).toBe(true);
  });

  it.each(['', 'a.example:80', '-a', 'a..b', 'a b', 'https://a', '[::1]', `${'a'.repeat(254)}`])(
    'refuses "%s"',
    (name) => {
      expect(isServerName(name)).toBe(false);
    },
  );
});
