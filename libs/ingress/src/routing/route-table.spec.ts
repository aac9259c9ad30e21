import fc from 'fast-check';
import type { IngressRoute } from '../model.js';
import { aRoute, aRule } from '../testing/builders.js';
import { normaliseHost } from './host.js';
import { isBelow, normalisePath } from './path.js';
import { RouteTable } from './route-table.js';

const route = (name: string, hosts: readonly string[], ...prefixes: string[]): IngressRoute =>
  aRoute({ name, hosts, rules: prefixes.map((pathPrefix) => aRule({ pathPrefix })) });

describe('the host of a request', () => {
  it.each([
    ['Shop.Example.COM', 'shop.example.com'],
    ['shop.example.com:8080', 'shop.example.com'],
    ['shop.example.com.', 'shop.example.com'],
    ['shop.example.com.:443', 'shop.example.com'],
    ['localhost:', 'localhost'],
    ['10.0.0.1:80', '10.0.0.1'],
    ['[FD12::1]:80', '[fd12::1]'],
    ['my_host.example', 'my_host.example'],
  ])('%s is %s', (text, host) => expect(normaliseHost(text)).toBe(host));

  it.each([
    ...['', ':80', '.', 'a..b', '-a.b', 'user@a.b', 'a b', 'a/b', 'a,b', '[fd12::1', '[zz]'],
    ...['a:99999', 'a:x', 'a:80:80', '*.example.com', `${'a'.repeat(64)}.b`, 'a.b..', 'ä.example'],
    `${'a.'.repeat(127)}aa`,
  ])('is refused: "%s"', (text) => expect(normaliseHost(text)).toBeUndefined());
});

describe('the path of a request', () => {
  it.each([
    ['/', '/'],
    ['/a/b?c=../d', '/a/b'],
    ['/%61dmin', '/admin'],
    ['/a%2fb', '/a%2Fb'],
    ['/a/...', '/a/...'],
    ['//a', '//a'],
  ])('%s is %s', (target, path) => expect(normalisePath(target)).toBe(path));

  it.each([
    ...[
      '',
      'a',
      '*',
      '/a/../b',
      '/..',
      '/a/.',
      '/a/%2e%2e/b',
      '/%2E./b',
      '/a%2F..%2Fb',
      '/a\\..\\b',
    ],
    ...['/a/..;x=1/b', '/%', '/%g1', '/a#b', '/a b'],
  ])('is refused: "%s"', (target) => expect(normalisePath(target)).toBeUndefined());
});

describe('RouteTable', () => {
  const table = new RouteTable([
    route('any', [], '/', '/any'),
    route('wild', ['*.example.com'], '/', '/wild'),
    route('exact', ['shop.example.com'], '/cart', '/cart/items/', '/api'),
  ]);
  it.each([
    { host: 'shop.example.com', path: '/cart', chosen: 'exact /cart' },
    { host: 'shop.example.com', path: '/cart/items', chosen: 'exact /cart/items/' },
    { host: 'shop.example.com', path: '/cart/items/7', chosen: 'exact /cart/items/' },
    { host: 'shop.example.com', path: '/cartoon', chosen: 'wild /' },
    { host: 'shop.example.com', path: '/wild/x', chosen: 'wild /wild' },
    { host: 'blog.example.com', path: '/cart', chosen: 'wild /' },
    { host: 'example.com', path: '/cart', chosen: 'any /' },
    { host: 'a.blog.example.com', path: '/wild', chosen: 'any /' },
    { host: '10.0.0.1', path: '/any', chosen: 'any /any' },
  ])('gives $host$path to $chosen', ({ host, path, chosen }) => {
    const match = table.choose(host, path);
    expect(`${match?.route.name} ${match?.rule.pathPrefix}`).toBe(chosen);
  });

  it('has no route for other hosts and paths', () => {
    const small = new RouteTable([route('exact', ['shop.example.com'], '/cart')]);
    expect(small.choose('shop.example.com', '/')).toBeUndefined();
    expect(small.choose('example.com', '/cart')).toBeUndefined();
    expect(small.hasHost('shop.example.com')).toBe(true);
    expect(small.hasHost('blog.example.com')).toBe(false);
  });

  const label = fc.constantFrom('a', 'b', 'c');
  const host = fc.array(label, { minLength: 1, maxLength: 3 }).map((labels) => labels.join('.'));
  const path = fc
    .array(fc.constantFrom('x', 'y', 'xy'), { maxLength: 3 })
    .map((p) => `/${p.join('/')}`);
  const aHost = fc.oneof(
    host,
    host.map((name) => `*.${name}`),
  );
  const routes = fc.array(
    fc.record({
      hosts: fc.array(aHost, { maxLength: 2 }),
      prefixes: fc.array(path, { minLength: 1, maxLength: 3 }),
    }),
    { maxLength: 6 },
  );

  /** The best of all rules by comparison of each with each. */
  const chooseNaively = (all: readonly IngressRoute[], host: string, path: string) => {
    const rank = (pattern: string): number => {
      if (pattern === host) return 2;
      return pattern.startsWith('*.') && host.split('.').slice(1).join('.') === pattern.slice(2)
        ? 1
        : -1;
    };
    const found = all.flatMap((route) =>
      route.rules.flatMap(({ pathPrefix }) => {
        const level = route.hosts.length === 0 ? 0 : Math.max(...route.hosts.map(rank));
        const wanted = pathPrefix.split('/').filter((part) => part !== '');
        const given = path.split('/').slice(1);
        const covers = level >= 0 && wanted.every((part, i) => part === given[i]);
        return covers ? [{ level, length: wanted.join('/').length, name: route.name }] : [];
      }),
    );
    const [best] = found.sort(
      (a, b) => b.level - a.level || b.length - a.length || (a.name < b.name ? -1 : 1),
    );
    return best?.name;
  };

  it('chooses as a comparison of all rules does, in any order of the routes', () => {
    fc.assert(
      fc.property(routes, host, path, (generated, host, path) => {
        const all = generated.map(({ hosts, prefixes }, i) => route(`r${i}`, hosts, ...prefixes));
        const chosen = new RouteTable(all).choose(host, path)?.route.name;
        expect(chosen).toBe(chooseNaively(all, host, path));
        expect(new RouteTable([...all].reverse()).choose(host, path)?.route.name).toBe(chosen);
      }),
    );
  });

  it('spells a normalised host or path as before', () => {
    const piece = fc.constantFrom(
      '/',
      '.',
      '%',
      '%2e',
      '%2F',
      '%61',
      '25',
      'A',
      'b',
      ':',
      '[',
      '?',
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
        for (const [normalise, text] of [
          [normaliseHost, pieces.join('')],
          [normalisePath, `/${pieces.join('')}`],
        ] as const) {
          const once = normalise(text);
          if (once !== undefined) expect(normalise(once)).toBe(once);
        }
      }),
    );
  });

  it('covers a prefix by whole segments', () => {
    expect(isBelow('/ab', '/a')).toBe(false);
    expect(isBelow('/a/b', '/a/')).toBe(true);
    expect(isBelow('/a', '/a/')).toBe(true);
  });
});
