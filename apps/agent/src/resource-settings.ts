import type { ConfigField } from '@cloudless/base';
import { LABEL_KEY, parsePairs } from './setting-lists.js';

type Parse<Value> = ConfigField<Value>['parse'];

/** Parses an amount of CPU to thousandths of a core. */
export const parseCpu: Parse<number> = (raw) => {
  const { number, milli } = /^(?<number>\d+(\.\d+)?)(?<milli>m)?$/.exec(String(raw))?.groups ?? {};
  if (number === undefined)
    return { problem: `"${String(raw)}" must be cores such as 0.5, or thousandths such as 500m` };
  return { value: Math.round(Number(number) * (milli === undefined ? 1_000 : 1)) };
};

const BYTES_PER_UNIT: Readonly<Record<string, number>> = {
  '': 1,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
};

/** Parses an amount of memory or storage to bytes. */
export const parseMemory: Parse<number> = (raw) => {
  const { number, unit } =
    /^(?<number>\d+(\.\d+)?)(?<unit>[KMGT]i|[kMGT])?$/.exec(String(raw))?.groups ?? {};
  if (number === undefined)
    return { problem: `"${String(raw)}" must be bytes, or an amount such as 512Mi or 2G` };
  return { value: Math.round(Number(number) * (BYTES_PER_UNIT[unit ?? ''] ?? 1)) };
};

const BITS_PER_UNIT: Readonly<Record<string, number>> = { '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12 };

/** Largest amount that the API accepts of bandwidth and of a custom resource. */
const MAX_AMOUNT = 1e15;

/** Parses a bandwidth to bits per second. */
export const parseBandwidth: Parse<number> = (raw) => {
  const { number, unit } =
    /^(?<number>\d+(\.\d+)?)(?<unit>[kMGT])?$/.exec(String(raw))?.groups ?? {};
  const value = Math.round(Number(number) * (BITS_PER_UNIT[unit ?? ''] ?? 1));
  if (number === undefined || value > MAX_AMOUNT)
    return {
      problem: `"${String(raw)}" must be bits per second, or an amount such as 100M or 1G`,
    };
  return { value };
};

/** Most custom resources of a node. The coordinator rejects more. */
const MAX_NAMES = 64;

/** Parses custom resources such as `example.com/license=4`. */
export const parseCustomResources: Parse<Readonly<Record<string, number>>> = (raw) => {
  const pairs = parsePairs(raw);
  if (pairs === undefined || pairs.length === 0)
    return { problem: 'must be names with amounts such as example.com/license=4' };
  if (pairs.length > MAX_NAMES) return { problem: `must be at most ${MAX_NAMES} names` };
  const amounts = new Map<string, number>();
  for (const [name, text] of pairs) {
    if (!LABEL_KEY.test(name) || !/^\d{1,16}$/.test(text) || Number(text) > MAX_AMOUNT)
      return {
        problem: `"${name}=${text}" must be a name and a whole number up to 10^15, such as example.com/license=4`,
      };
    if (amounts.has(name)) return { problem: `"${name}" is given twice` };
    amounts.set(name, Number(text));
  }
  return { value: Object.fromEntries(amounts) };
};
