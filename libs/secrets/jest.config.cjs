module.exports = { preset: '../../jest.preset.js', displayName: 'secrets' };
