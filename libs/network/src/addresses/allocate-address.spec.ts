import fc from 'fast-check';
import { createSeededRandom } from '@cloudless/base';
import {
  RESERVED_ADDRESSES,
  assignableCount,
  dnsAddressOf,
  isAssignable,
  isInRange,
  parseAddressRange,
} from './address-range.js';
import {
  ADDRESS_HOLD_MS,
  allocateAddress,
  allocateNodePort,
  type AssignedAddress,
} from './allocate-address.js';

const range = parseAddressRange('10.96.0.0/26');

describe('parseAddressRange', () => {
  it.each([
    ['10.96.0.0/16', 65_536, '10.96.0.10'],
    ['127.64.0.0/16', 65_536, '127.64.0.10'],
    ['192.168.7.64/26', 64, '192.168.7.74'],
    ['10.0.0.0/8', 16_777_216, '10.0.0.10'],
  ])('reads %s: %i addresses, DNS at %s', (text, size, dns) => {
    const parsed = parseAddressRange(text);
    expect({ text: parsed.text, size: parsed.size, dns: dnsAddressOf(parsed) }).toEqual({
      text,
      size,
      dns,
    });
  });

  it.each([
    ['10.96.0.1/16', 'did you mean 10.96.0.0/16?'],
    ['10.96.0.0', 'is not an IPv4 range'],
    ['10.96.0.0/16/2', 'is not an IPv4 range'],
    ['10.96/16', 'is not an IPv4 range'],
    ['fd00::/64', 'is not an IPv4 range'],
    ['10.96.0.0/33', 'is not an IPv4 range'],
    ['10.96.0.0/1e1', 'is not an IPv4 range'],
    ['10.96.0.0/27', 'use 8 to 26'],
    ['0.0.0.0/4', 'use 8 to 26'],
    ['169.254.0.0/16', 'linkLocal'],
    ['169.0.0.0/8', 'linkLocal'],
    ['224.0.0.0/8', 'multicast'],
    ['0.0.0.0/8', 'unspecified'],
  ])('refuses %s: %s', (text, message) => {
    expect(() => parseAddressRange(text, '--service-cidr')).toThrow(message);
    expect(() => parseAddressRange(text, '--service-cidr')).toThrow('--service-cidr');
  });
});

describe('allocateAddress', () => {
  it('assigns each address once until none is free, and then names the range', () => {
    fc.assert(
      fc.property(fc.integer(), (seed) => {
        const random = createSeededRandom(seed);
        const assigned = new Map<string, AssignedAddress>();
        for (let count = 0; count < assignableCount(range); count += 1) {
          const result = allocateAddress({ range, assigned, nowMs: 0, random });
          if (result.kind !== 'allocated') throw new Error(result.message);
          expect(assigned.has(result.address)).toBe(false);
          expect(isAssignable(range, result.address)).toBe(true);
          assigned.set(result.address, { releasedAtMs: undefined });
        }
        const exhausted = allocateAddress({ range, assigned, nowMs: 0, random });
        expect(exhausted).toMatchObject({
          kind: 'exhausted',
          message: expect.stringContaining('10.96.0.0/26'),
        });
      }),
      { numRuns: 20 },
    );
  });

  it('never assigns an address within one hour of its release, whatever happens between', () => {
    const step = fc.record({
      waitMs: fc.integer({ min: 0, max: 2_000_000 }),
      release: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), fc.integer(), (steps, seed) => {
        const random = createSeededRandom(seed);
        const assigned = new Map<string, AssignedAddress>();
        let nowMs = 0;
        for (const { waitMs, release } of steps) {
          nowMs += waitMs;
          const used = [...assigned].find(([, { releasedAtMs }]) => releasedAtMs === undefined);
          if (release && used !== undefined) {
            assigned.set(used[0], { releasedAtMs: nowMs });
            continue;
          }
          const result = allocateAddress({ range, assigned, nowMs, random });
          if (result.kind !== 'allocated') continue;
          const before = assigned.get(result.address);
          const isFree =
            before === undefined || nowMs - (before.releasedAtMs ?? Infinity) >= ADDRESS_HOLD_MS;
          expect(isFree).toBe(true);
          assigned.set(result.address, { releasedAtMs: undefined });
        }
      }),
    );
  });

  it.each([
    ['10.96.0.20', { kind: 'allocated', address: '10.96.0.20' }],
    ['10.96.0.10', { kind: 'refused', message: expect.stringContaining('10.96.0.0/26') }],
    ['10.96.0.63', { kind: 'refused', message: expect.stringContaining('10.96.0.0/26') }],
    ['10.97.0.20', { kind: 'refused', message: expect.stringContaining('10.96.0.0/26') }],
    ['fd00::20', { kind: 'refused', message: expect.stringContaining('10.96.0.0/26') }],
    ['10.96.0.30', { kind: 'refused', message: expect.stringContaining('another service') }],
  ])('answers a request for %s', (wanted, expected) => {
    const assigned = new Map([['10.96.0.30', { releasedAtMs: undefined }]]);
    const random = createSeededRandom(1);
    expect(allocateAddress({ range, assigned, nowMs: 0, random, wanted })).toEqual(expected);
  });

  it('keeps the first addresses and the last for the cluster', () => {
    expect(isAssignable(range, dnsAddressOf(range))).toBe(false);
    expect(isAssignable(range, `10.96.0.${RESERVED_ADDRESSES - 1}`)).toBe(false);
    expect(isAssignable(range, `10.96.0.${RESERVED_ADDRESSES}`)).toBe(true);
    expect(isAssignable(range, '10.96.0.63')).toBe(false);
    expect(isInRange(range, '10.96.0.63')).toBe(true);
    expect(isInRange(range, '10.96.0.64')).toBe(false);
  });
});

describe('allocateNodePort', () => {
  it('assigns each port once until none is free', () => {
    const random = createSeededRandom(7);
    const taken = new Set<number>();
    for (let count = 0; count < 2_768; count += 1) {
      const result = allocateNodePort(taken, random);
      if (result.kind !== 'allocated') throw new Error(result.message);
      expect(taken.has(result.port)).toBe(false);
      taken.add(result.port);
    }
    expect(allocateNodePort(taken, random)).toMatchObject({ kind: 'exhausted' });
  });

  it.each([
    [30_080, { kind: 'allocated', port: 30_080 }],
    [0, { kind: 'allocated', port: expect.any(Number) }],
    [80, { kind: 'refused', message: 'node port 80 is not in 30000 to 32767' }],
    [30_081, { kind: 'refused', message: 'node port 30081 belongs to another service' }],
  ])('answers a request for %i', (wanted, expected) => {
    expect(allocateNodePort(new Set([30_081]), createSeededRandom(1), wanted)).toEqual(expected);
  });
});
