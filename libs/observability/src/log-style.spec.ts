import { describe, expect, it } from '@jest/globals';
import { jsonToPrettyLine, toJsonLine, toPrettyLine, type LogEntry } from './format.js';
import { chooseLogStyle } from './log-style.js';

describe('chooseLogStyle', () => {
  it.each([
    { choice: 'auto', isTTY: true, env: {}, format: 'pretty', colors: true },
    { choice: 'auto', isTTY: false, env: {}, format: 'json', colors: false },
    { choice: 'auto', isTTY: undefined, env: { FORCE_COLOR: '1' }, format: 'json', colors: false },
    { choice: 'json', isTTY: true, env: {}, format: 'json', colors: false },
    { choice: 'pretty', isTTY: false, env: {}, format: 'pretty', colors: false },
    { choice: 'pretty', isTTY: false, env: { FORCE_COLOR: '1' }, format: 'pretty', colors: true },
    { choice: 'pretty', isTTY: false, env: { FORCE_COLOR: '0' }, format: 'pretty', colors: false },
    { choice: 'auto', isTTY: true, env: { NO_COLOR: '1' }, format: 'pretty', colors: false },
    { choice: 'auto', isTTY: true, env: { NO_COLOR: '' }, format: 'pretty', colors: true },
    { choice: 'auto', isTTY: true, env: { TERM: 'dumb' }, format: 'pretty', colors: false },
    {
      choice: 'pretty',
      isTTY: true,
      env: { NO_COLOR: '1', FORCE_COLOR: '1' },
      format: 'pretty',
      colors: false,
    },
  ] as const)(
    'returns $format with colors $colors for $choice, terminal $isTTY and $env',
    ({ choice, isTTY, env, format, colors }) => {
      expect(chooseLogStyle(choice, { isTTY }, env)).toEqual({ format, colors });
    },
  );
});

const entry: LogEntry = {
  level: 'warn',
  message: 'node lost',
  timeMs: Date.UTC(2026, 0, 1, 10, 20, 30, 400),
  fields: { component: 'membership', nodeId: 'n-1', lastPing: '3 s ago' },
};

describe('toPrettyLine', () => {
  it('writes a line without control characters unless colours are requested', () => {
    expect(toPrettyLine(entry)).toBe(
      '10:20:30.400 WARN  [membership] node lost nodeId=n-1 lastPing="3 s ago"',
    );
  });

  it('paints the level by its severity and keeps the text', () => {
    const painted = toPrettyLine(entry, { colors: true });
    expect(painted).toContain('\x1b[33mWARN \x1b[39m');
    expect(painted.replaceAll(/\x1b\[\d+m/g, '')).toBe(toPrettyLine(entry));
  });
});

describe('jsonToPrettyLine', () => {
  it('returns the same line as toPrettyLine for a line of toJsonLine', () => {
    expect(jsonToPrettyLine(toJsonLine(entry))).toBe(toPrettyLine(entry));
  });

  it.each([
    'Error: x',
    '{',
    '{}',
    '[]',
    '{"time":"x","level":"info","message":"m"}',
    '{"time":"2026-01-01T00:00:00Z","level":"toString","message":"m"}',
    '{"time":"2026-01-01T00:00:00Z","level":"info","message":1}',
  ])('returns undefined for %s, which is no log line', (text) => {
    expect(jsonToPrettyLine(text)).toBeUndefined();
  });
});
