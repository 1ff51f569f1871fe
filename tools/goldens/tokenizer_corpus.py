"""Texts that tokenizers are compared on: languages, scripts, code, white space, and what breaks naive splitters."""

TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\t\t\n  \n", " \n ", "a", " a", "a ", "  a  b   c    d",
    "Hello, world!", "hello world", "HELLO WORLD", "Hello", " Hello", "  Hello", "   Hello", " Hello\n Hello",
    "The quick brown fox jumps over the lazy dog.",
    "I'm sure you've seen that they'll say it's what we'd want, isn't it? I'M SURE YOU'VE SEEN IT'S",
    "don't can't won't shouldn't o'clock 'tis ''quoted'' 's 'S 't 'LL 'Re",
    "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 0x1F 2024-01-31 12:34:56",
    "x=1;y=2;z=x+y", "a1b2c3", "v1.2.3-rc.4+build.5", "50% off! $9.99 & more... (see #3) @home",
    "½ ¼ ² ³ ① ② Ⅳ ⅷ ٣٤٥ १२३ 一二三 𝟘𝟙",
    "Grüße aus München, schöne Straße, Äpfel und Öl.", "Ça va? L'été à la française, œuvre, naïve, Noël.",
    "El niño comió piñata mañana. ¿Qué? ¡Olé!", "Zażółć gęślą jaźń. Příliš žluťoučký kůň.",
    "Быстрая коричневая лиса прыгает через ленивую собаку.", "Привет, мир! Ёлка, объём.",
    "Η γρήγορη καφέ αλεπού πηδάει. Ώρα ΐ ΰ ᾳ ώ", "שלום עולם, מה שלומך?", "مرحبا بالعالم، كيف حالك؟ ١٢٣",
    "هٰذَا نَصٌّ مُشَكَّلٌ", "नमस्ते दुनिया, आप कैसे हैं?", "வணக்கம் உலகம்", "สวัสดีชาวโลก ภาษาไทย", "ភាសាខ្មែរ",
    "你好，世界！", "今天天气真不错，我们去公园吧。2024年1月31日", "中文 mixed 英文 text 123 数字", "繁體中文測試：這是一個測試。",
    "こんにちは世界。カタカナとひらがな、漢字。", "日本語テキストABC１２３", "안녕하세요 세계! 한국어 텍스트입니다.", "ㄱㄴㄷ 가나다",
    "Xin chào thế giới, tiếng Việt có dấu.", "ქართული ენა", "Հայերեն լեզու", "አማርኛ ቋንቋ",
    "😀 😃😄 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ ☃ ✈️", "emoji😀inside👍words", "🤖", "🤖🤖", " 🤖 ", "👩🏿‍🚀 rocket 🚀!",
    "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β = ¬(¬α ∨ β)", "→ ← ↔ ⇒ ⇔ ≤ ≥ ≠ ≈ ∞ √ ∑ ∏ ∫", "“quotes” ‘single’ «guillemets» „low“ —dash– …ellipsis",
    "café cafe\u0301 e\u0301\u0302 a\u0323\u0307 a\u0307\u0323", "ﬁne ﬂow ﬃ Å Å Ω Ω K", "ǅ ǈ ǋ ŉ ß ẞ İ ı ſ 'ſ",
    "zero\u200bwidth\u200djoin\u2060er\ufeff", "nbsp\u00a0here\u00a0 there", "nel\u0085line\u2028sep\u2029para", "ideographic\u3000space\u3000\u3000x",
    "mongolian\u180evowel \u180e separator", "thin\u2009hair\u200a en\u2002em\u2003 \u202f \u205f", "tab\tseparated\tvalues", "vt\x0bff\x0cx", "ctrl\x00\x01\x1f\x7f!",
    "trailing spaces   ", "trailing newline\n", "trailing both  \n", "   leading", "\n\n\nleading newlines", "a\n\n\n\nb", "a\r\nb\r\n\r\nc\rd",
    "line one  \nline two\t\n   line three   \n\n\n   ", "    indented\n        more\n    back\n", "a \n b", "x  \n\n  y", "  \n  \n  z",
    "def f(x):\n    \"\"\"Doc.\"\"\"\n    if x > 0:\n        return x * 2  # comment\n    return None\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];\n}\n", "#include <vector>\nstd::vector<int> v{1, 2, 3};\nauto&& [a, b] = f();",
    "SELECT * FROM users WHERE id = 42 AND name LIKE '%bob%';", "{\"key\": [1, 2.5, null, true], \"nested\": {\"a\": \"b\\n\"}}",
    "<html><body class=\"x\">Hi &amp; bye</body></html>", "https://example.com/path?query=1&other=two#frag", "user@example.com /usr/local/bin C:\\Windows\\System32",
    "$ git commit -m 'fix: bug' && git push --force", "| a | b |\n|---|---|\n| 1 | 2 |\n", "- item\n- item 2\n  - sub\n* star\n1. one",
    "camelCase PascalCase snake_case kebab-case SCREAMING_CASE", "i18n l10n k8s H2O C3PO", "!!!", "???!!!...", "-----", "=====", "_____", "......", "~~~", "''''", "\"\"\"\"", "((()))", "[[[]]]", "{{{}}}",
    "/////", "\\\\\\\\", "@@@", "###", "$$$", "%%%", "^^^", "&&&", "***", "+++", "<<<>>>", "`code`", "```py\ncode\n```",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ababababababababababababababababababababab", " " * 70, " " * 17 + "x", "\n" * 20, "\t" * 12, "=" * 80, "0" * 40, "é" * 30, "好" * 30,
    "Supercalifragilisticexpialidocious antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "The U.S. and U.K. e.g. i.e. etc. Mr. Smith's Ph.D.", "a'b'c d'e", "rock'n'roll", "foo.bar(baz)->qux::quux", "x->y", "a  +  b", "1+1=2", "2^10=1024", "50°C", "5'11\"", "§ 3.2 ¶ † ‡ • ‣",
    "𝕳𝖊𝖑𝖑𝖔 𝓦𝓸𝓻𝓵𝓭", "Ｆｕｌｌｗｉｄｔｈ　ｔｅｘｔ！", "ｶﾀｶﾅ", "\U0001F9D1\u200D\U0001F4BB codes", "\ue000 private \U000f0000", "\ufffd replacement \ufffd\ufffd",
    "한글 조합 \u1112\u1161\u11ab", "ไม่มีช่องว่าง", "བོད་ཡིག", "ᚠᛇᚻ", "𒀀𒀁", "𐐷𐐨", "ꙮ", "ꞌ ꭰ Ꭰ", "ʰʲʷ ˈaɪ pʰiː",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|endoftext|>", "a<|im_end|>b", " <|im_end|> ", "<|im_end", "<|im_end|", "<<|im_end|>>", "<s>hi</s>", "[INST] x [/INST]",
    "<jupyter_start>code<file_sep>", "<repo_name>", "end <|endoftext|>  next", "<|im_start|><|im_start|>",
]

# Bytes that are not UTF-8. Cut into valid stretches (text) and single bad bytes by hand.
INVALID = [
    ["ab", 0xFF, "cd"], [0x80], [0xC3], ["x", 0xE2, 0x82], ["x", 0xE2, 0x82, " y"], [0xF0, 0x9F, 0x98], ["é", 0xC3, "("],
    [0xED, 0xA0, 0x80, "surrogate"], [0xC0, 0xAF], [0xF5, 0x80], ["你", 0xE5, 0xA5, "好"], [" ", 0xFE, " ", 0xFF, " "],
]

# What Kimi's pattern decides: Han among other scripts, cases, marks, contractions, digits, white space, added tokens.
KIMI_TEXTS = [
    " 中文", "\u3000中", " ⺀x", "中⺀", "!⺀", "1〇〇〇", "x々y", "々x", "A中B", "中A's", "한국ABC", "ABC한국DEF", "あい中う", "カタカナー中", "中文字。日本語です",
    "０１２３", "!\n/x", "\x1c\x1c a", "\u0301A!", "!\u0301", "!!\u0301", "'llama", "1's", "don't DON'T don'T it'ſ IT'S we'LL we'lL", "camelCase HTMLParser XMLHttpRequest iPhone15Pro",
    "ǅungla ǅUNGLA ʰʲʷ aʰA", "e\u0301E\u0301e", "\u0301\u0302\u0303", " \u0301x", "\n\u0301x", "นี่คือข้อความภาษาไทยที่ยาวกว่าเดิม", "ภาษาไทยABCภาษา",
    "हिन्दी में लिखा हुआ वाक्य", "日本語とEnglishとหลายภาษา混在text", "你好world再见World2024年", "３．１４１５９２６", "12345678901234567890", "1234a5678b", "٠١٢٣٤٥٦٧٨٩", "Ⅷ½²",
    "👨‍👩‍👧‍👦👩🏽‍💻🏴󠁧󠁢󠁥󠁮󠁧󠁿", "a👍🏿b", "\t\tx\t y", "a\t\n\tb", "\r\n\r\n x", "x \n \n y", "  \n\n  ", "a\u2028b\u2029\u2029c", "a\u00a0\u00a0b", "\u0085\u0085x",
    "foo_bar __init__ ->x ::y //z", "...\n\n...\r\n", "!?\n!?", " - x\n - y", "“中文”‘引号’", "（全角）｛括号｝", "中\n\n文", "中 文　字", "ㄅㄆㄇ㐀㐁𠀀𠀁𪜀", "𰻝𰻞𱍊", "\U0002EBF0\U0002EE5D", "\u2FFC\u31EF",
    "[BOS]hi[EOS]", "a[EOS", "[EOS]]", "<|open|>message role=\"user\"<|sep|>hi<|close|>message<|sep|><|end_of_msg|>", "<|open|", "<think>x</think>", "<|reserved_token_3010|>x", "<|reserved_token_163600|> y",
    "[start_header_id][EOT][end_header_id]", "  [EOS]  ", "x \n[EOS]\n y", "中[EOS]文", "<|media_begin|>image<|media_content|><|media_pad|><|media_end|>", "<osagent_mode>", "[PAD][UNK]",
]
