import { describe, expect, it } from '@jest/globals';
import { toNodeHosts, toPodHosts } from './hosts-text.js';

const LOCAL = `127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::	ip6-localnet
ff00::	ip6-mcastprefix
ff02::1	ip6-allnodes
ff02::2	ip6-allrouters
`;
const extraHosts = [
  { ip: '192.0.2.10', hostnames: ['db', 'db.internal'] },
  { ip: '2001:db8::1', hostnames: ['cache'] },
];

describe('toPodHosts', () => {
  it('lists localhost, the name of the container, and then the extra hosts', () => {
    expect(toPodHosts({ hostname: 'web-1', ip: '10.0.0.7' }, extraHosts)).toBe(
      `${LOCAL}10.0.0.7\tweb-1\n192.0.2.10\tdb db.internal\n2001:db8::1\tcache\n`,
    );
  });

  it('maps the name of the container to 127.0.1.1 when the sandbox has no address', () => {
    expect(toPodHosts({ hostname: 'web-1', ip: '' }, [])).toBe(`${LOCAL}127.0.1.1\tweb-1\n`);
  });
});

describe('toNodeHosts', () => {
  it.each([
    { name: 'as the canonical name', file: '127.0.0.1 localhost\n10.0.0.1\tnode-1 node-1.lan\n' },
    {
      name: 'as an alias',
      file: '127.0.0.1 localhost\n10.0.0.1   node-1.lan  node-1 # this node\n',
    },
  ])(
    'keeps the file of the node unchanged when it contains the name of the node $name',
    ({ file }) => {
      expect(toNodeHosts(file, 'node-1', [])).toBe(file);
      expect(toNodeHosts(file, 'node-1', extraHosts)).toBe(
        `${file}192.0.2.10\tdb db.internal\n2001:db8::1\tcache\n`,
      );
    },
  );

  it.each([
    { name: 'is missing', file: '127.0.0.1 localhost\n' },
    { name: 'is in a comment only', file: '127.0.0.1 localhost # node-1\n#10.0.0.1 node-1\n' },
    { name: 'is part of another name only', file: '10.0.0.2 node-10 a-node-1\n' },
  ])('adds the name of the node when it $name', ({ file }) => {
    expect(toNodeHosts(file, 'node-1', [])).toBe(`${file}127.0.1.1\tnode-1\n`);
  });

  it('lists localhost and the name of the node when the node has no hosts file', () => {
    expect(toNodeHosts(undefined, 'node-1', [])).toBe(`${LOCAL}127.0.1.1\tnode-1\n`);
  });

  it('adds the name on a line of its own when the file of the node does not end with a line feed', () => {
    expect(toNodeHosts('127.0.0.1 localhost', 'node-1', [])).toBe(
      '127.0.0.1 localhost\n127.0.1.1\tnode-1\n',
    );
  });
});
