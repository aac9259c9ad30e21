import fc from 'fast-check';
import {
  InvalidInputError,
  durationField,
  oneOfField,
  parseConfig,
  sizeField,
  switchField,
  textField,
  wholeNumberField,
  type ConfigField,
  type ConfigLayer,
} from './index.js';

const fields = {
  name: textField('node', { pattern: /^[a-z]+$/, expected: 'lower-case letters' }),
  zone: textField(undefined),
  port: wholeNumberField(8080, 1, 65535),
  mode: oneOfField('dev', ['dev', 'secure']),
  verbose: switchField(false),
  leaseMs: durationField(3_000, 100, 60_000),
};
const read = (...layers: ConfigLayer[]) => parseConfig<Parsed>(fields, layers);
interface Parsed {
  name: string;
  zone: string | undefined;
  port: number;
  mode: 'dev' | 'secure';
  verbose: boolean;
  leaseMs: number;
}
const defaults: Parsed = {
  name: 'node',
  zone: undefined,
  port: 8080,
  mode: 'dev',
  verbose: false,
  leaseMs: 3_000,
};

function findViolations(action: () => unknown): unknown {
  try {
    action();
  } catch (reason) {
    if (reason instanceof InvalidInputError) return reason.violations;
    throw reason;
  }
  return [];
}

describe('parseConfig', () => {
  it('returns the defaults when no layer sets a value', () => {
    expect(read()).toEqual(defaults);
    expect(read({ source: 'file', values: {} })).toEqual(defaults);
  });

  it('lets later layers override earlier layers field by field, except with undefined', () => {
    expect(
      read(
        { source: 'file', values: { name: 'file', port: 1, verbose: true } },
        { source: 'environment', values: { port: '2', mode: undefined } },
        { source: 'command line', values: { mode: 'secure', name: undefined } },
      ),
    ).toEqual({ ...defaults, name: 'file', port: 2, verbose: true, mode: 'secure' });
  });

  it('reports all problems of all layers at once, each with its source and its name in the source', () => {
    const layers: ConfigLayer[] = [
      { source: 'cloudless.yaml', values: { prot: 1, port: 0, zone: null } },
      {
        source: 'environment',
        values: { leaseMs: 'soon' },
        nameOf: (key) => `CLOUDLESS_${key.toUpperCase()}`,
      },
    ];
    expect(findViolations(() => read(...layers))).toEqual([
      {
        field: 'cloudless.yaml: prot',
        message: 'is not a setting; the settings are name, zone, port, mode, verbose, leaseMs',
      },
      { field: 'cloudless.yaml: port', message: '"0" must be a whole number from 1 to 65535' },
      { field: 'cloudless.yaml: zone', message: 'must be text' },
      {
        field: 'environment: CLOUDLESS_LEASEMS',
        message: '"soon" must be a duration such as 250ms, 3s or 1m30s, from 100 ms to 60000 ms',
      },
    ]);
  });

  it('reports an invalid value even when a later layer overrides it', () => {
    expect(
      findViolations(() =>
        read({ source: 'file', values: { port: 'x' } }, { source: 'flags', values: { port: 5 } }),
      ),
    ).toHaveLength(1);
  });

  it('rejects the names of inherited object members as unknown settings', () => {
    const values = JSON.parse('{"__proto__": 1, "constructor": 2, "toString": 3}') as Record<
      string,
      unknown
    >;
    expect(findViolations(() => read({ source: 'file', values }))).toHaveLength(3);
  });
});

describe('config fields', () => {
  const text = textField('x');
  const pattern = textField('x', { pattern: /^a+$/g, expected: 'only a' });
  const number = wholeNumberField(1, -5, 65535);
  const word = oneOfField('b', ['a', 'b']);
  const flag = switchField(true);
  const duration = durationField(1, 0, 7_200_000);
  const size = sizeField(1, 1_000, 1_024 ** 3);
  const cases: readonly {
    readonly name: string;
    readonly field: ConfigField<unknown>;
    readonly raw: unknown;
    readonly value?: unknown;
    readonly problem?: string;
  }[] = [
    { name: 'text', field: text, raw: '', value: '' },
    { name: 'text', field: text, raw: 7, problem: 'must be text' },
    { name: 'text with a pattern', field: pattern, raw: 'aa', value: 'aa' },
    {
      name: 'text with a global pattern, parsed a second time',
      field: pattern,
      raw: 'aa',
      value: 'aa',
    },
    { name: 'text with a pattern', field: pattern, raw: 'b', problem: '"b" must be only a' },
    { name: 'a whole number', field: number, raw: 7, value: 7 },
    { name: 'a whole number', field: number, raw: ' 7 ', value: 7 },
    { name: 'a whole number', field: number, raw: '-5', value: -5 },
    {
      name: 'a whole number',
      field: number,
      raw: -6,
      problem: '"-6" must be a whole number from -5 to 65535',
    },
    {
      name: 'a whole number',
      field: number,
      raw: 1.5,
      problem: '"1.5" must be a whole number from -5 to 65535',
    },
    {
      name: 'a whole number',
      field: number,
      raw: '1e3',
      problem: '"1e3" must be a whole number from -5 to 65535',
    },
    {
      name: 'a whole number',
      field: number,
      raw: '',
      problem: '"" must be a whole number from -5 to 65535',
    },
    {
      name: 'a whole number',
      field: number,
      raw: Number.NaN,
      problem: '"NaN" must be a whole number from -5 to 65535',
    },
    {
      name: 'a whole number',
      field: number,
      raw: [7],
      problem: '"[7]" must be a whole number from -5 to 65535',
    },
    {
      name: 'a whole number',
      field: number,
      raw: Object.create(null),
      problem: '"{}" must be a whole number from -5 to 65535',
    },
    {
      name: 'a whole number',
      field: number,
      raw: null,
      problem: '"null" must be a whole number from -5 to 65535',
    },
    { name: 'one of a and b', field: word, raw: 'a', value: 'a' },
    { name: 'one of a and b', field: word, raw: 'A', problem: '"A" must be one of a, b' },
    { name: 'a size', field: size, raw: '512Ki', value: 524_288 },
    { name: 'a size', field: size, raw: '1Gi', value: 1_073_741_824 },
    { name: 'a size', field: size, raw: 65_536, value: 65_536 },
    ...['999', '2Gi', '1.5Mi', '64MB', '64 Mi', '', '-1Ki', null, Number.NaN].map((raw) => ({
      name: 'a size',
      field: size,
      raw,
      problem: `"${raw}" must be a size such as 512Ki or 64Mi, from 1000 to 1073741824 bytes`,
    })),
    { name: 'a switch', field: flag, raw: false, value: false },
    { name: 'a switch', field: flag, raw: 'true', value: true },
    { name: 'a switch', field: flag, raw: 'yes', problem: '"yes" must be true or false' },
    { name: 'a switch', field: flag, raw: 1, problem: '"1" must be true or false' },
    { name: 'a duration', field: duration, raw: '250ms', value: 250 },
    { name: 'a duration', field: duration, raw: '1m30s', value: 90_000 },
    { name: 'a duration', field: duration, raw: '2h', value: 7_200_000 },
    { name: 'a duration', field: duration, raw: '0s', value: 0 },
    {
      name: 'a duration',
      field: duration,
      raw: '3',
      problem: '"3" must be a duration such as 250ms, 3s or 1m30s, from 0 ms to 7200000 ms',
    },
    {
      name: 'a duration',
      field: duration,
      raw: 3,
      problem: '"3" must be a duration such as 250ms, 3s or 1m30s, from 0 ms to 7200000 ms',
    },
    {
      name: 'a duration',
      field: duration,
      raw: '1.5s',
      problem: '"1.5s" must be a duration such as 250ms, 3s or 1m30s, from 0 ms to 7200000 ms',
    },
    {
      name: 'a duration',
      field: duration,
      raw: '3h',
      problem: '"3h" must be a duration such as 250ms, 3s or 1m30s, from 0 ms to 7200000 ms',
    },
  ];
  it.each(
    cases.map((each) => ({
      ...each,
      input: Number.isNaN(each.raw) ? 'NaN' : JSON.stringify(each.raw),
      outcome: each.problem === undefined ? 'accept' : 'reject',
    })),
  )('$outcome $input as $name', ({ field, raw, value, problem }) => {
    expect(field.parse(raw)).toEqual(problem === undefined ? { value } : { problem });
  });

  it('return a value or a problem for any input, and never throw', () => {
    const all = [text, pattern, number, word, flag, duration];
    fc.assert(
      fc.property(
        fc.anything({ withBigInt: true, withNullPrototype: true, withMap: true }),
        fc.constantFrom<ConfigField<unknown>>(...all),
        (raw, field) => {
          const parsed = field.parse(raw);
          expect(
            'value' in parsed ||
              parsed.problem.startsWith('must be') ||
              parsed.problem.startsWith('"'),
          ).toBe(true);
        },
      ),
    );
  });

  it('parse every duration of whole numbers with the units ms, s, m and h', () => {
    const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };
    const part = fc.tuple(fc.nat(20), fc.constantFrom('ms', 's', 'm', 'h'));
    fc.assert(
      fc.property(fc.array(part, { minLength: 1, maxLength: 4 }), (parts) => {
        const expected = parts.reduce(
          (sum, [count, unit]) => sum + count * units[unit as keyof typeof units],
          0,
        );
        const raw = parts.map(([count, unit]) => `${count}${unit}`).join('');
        expect(durationField(1, 0, Number.MAX_SAFE_INTEGER).parse(raw)).toEqual({
          value: expected,
        });
      }),
    );
  });
});
