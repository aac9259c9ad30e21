import { quote } from './run-command.js';

describe('quote', () => {
  it.each([
    ['plain', 'plain'],
    ['--limit=8', '--limit=8'],
    ['two words', "'two words'"],
    ["it's", "'it'\\''s'"],
    ['$HOME', "'$HOME'"],
    ['', "''"],
  ])('quotes %j as %s for a shell', (word, shown) => {
    expect(quote(word)).toBe(shown);
  });
});
