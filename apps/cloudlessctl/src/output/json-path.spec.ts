import type { JsonValue } from '@bufbuild/protobuf';
import { compareJsonValues, formatJsonPath, parseJsonPathTemplate } from './json-path.js';

const ROOT: JsonValue = {
  items: [
    { name: 'web', labels: { 'example.com/app': 'shop' }, size: 2, ready: true, tags: ['a', 'b'] },
    { name: 'api', labels: {}, size: 10, ready: false, tags: [] },
  ],
  revision: '12',
};
const evaluate = (template: string): string =>
  formatJsonPath(parseJsonPathTemplate(template), ROOT);

describe('formatJsonPath', () => {
  it.each([
    ['{.revision}', '12'],
    ['.revision', '12'],
    ['{$.revision}', '12'],
    ['{.items[*].name}', 'web api'],
    ['{.items[0].name}', 'web'],
    ['{.items[-1].name}', 'api'],
    ['{.items[0:1].name}', 'web'],
    ['{.items[:1].name}', 'web'],
    ['{.items[1:].name}', 'api'],
    ["{.items[0]['name']}", 'web'],
    ['{.items[0].labels.example\\.com/app}', 'shop'],
    ['{..name}', 'web api'],
    ['{.items[0].tags}', '["a","b"]'],
    ['{.items[?(@.size>=10)].name}', 'api'],
    ['{.items[?(@.size < 10)].name}', 'web'],
    ['{.items[?(@.ready==true)].name}', 'web'],
    ['{.items[?(@.name!="web")].name}', 'api'],
    ['{.items[?(@.tags[0])].name}', 'web'],
    ['{.items[*].nothing}', ''],
    ['{range .items[*]}{.name}{"\\t"}{.size}{"\\n"}{end}', 'web\t2\napi\t10\n'],
    ['{range .items[*]}{@.name}: {range .tags[*]}<{@}>{end};{end}', 'web: <a><b>;api: ;'],
    ['revision {.revision}!', 'revision 12!'],
  ])('evaluates %s', (template, text) => {
    expect(evaluate(template)).toBe(text);
  });

  it.each([
    ['{.items[}', 'position 9: expected a number, *, a quoted name or ?( but found "}"'],
    ['{.items', 'position 8: expected } but found the end'],
    ['{range .items[*]}{.name}', 'position 1: {range} without {end}'],
    ['{end}', 'position 1: {end} without {range}'],
    ['{.items[0,1]}', 'position 10: several numbers in one [ ] are not supported'],
    ['{"a}', 'position 2: the text has no closing "'],
    ['{items}', 'position 2: expected a path such as .status.phase but found "items}"'],
    ['{.items[?(@.a~1)]}', 'position 14: expected )] but found "~1)]}"'],
    ['{.}{.a b}', 'position 8: expected } but found "b}"'],
  ])('rejects %s', (template, message) => {
    expect(() => parseJsonPathTemplate(template)).toThrow(message);
  });
});

describe('compareJsonValues', () => {
  it.each([
    ['9', '10'],
    [9, 10],
    ['2026-01-01T00:00:00Z', '2026-01-01T00:00:00.500Z'],
    ['a', 'b'],
    ['1h', 'a'],
  ])('orders %s before %s', (a, b) => {
    expect(compareJsonValues(a, b)).toBeLessThan(0);
    expect(compareJsonValues(b, a)).toBeGreaterThan(0);
    expect(compareJsonValues(a, a)).toBe(0);
  });
});
